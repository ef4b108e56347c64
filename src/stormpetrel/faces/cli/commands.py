"""The table of commands: path, function and help line of each, in the order of `--help`.

A help line is the first line of the function's docstring; a test keeps them equal.
"""

from __future__ import annotations

from typing import Final

from stormpetrel.faces.cli.lazy_group import CommandEntry, Entry, GroupEntry

COMMANDS: Final[dict[str, Entry]] = {
    "init": CommandEntry(
        "doctor:init", "Create a site: look for Slurm, HTCondor and Prometheus, write a commented site.toml; no questions."
    ),
    "doctor": CommandEntry(
        "doctor:doctor", "Check the site, and report what is wrong and what to do; exit code 1 if there is a problem."
    ),
    "demo": CommandEntry(
        "demo.command:demo",
        "Simulate a small cluster, learn from it, and watch it live in the browser. Run it again to continue.",
    ),
    "ingest": GroupEntry(
        "Read records into the site.",
        {
            "jobs": CommandEntry(
                "ingest.jobs:ingest_jobs", "Read job records from files, from standard input, or from a running Slurm (--live)."
            ),
            "traces": CommandEntry(
                "ingest.traces:ingest_traces",
                "Cut CPU traces into windows and store them: from campaign files, or from a running Prometheus (--live).",
            ),
            "events": CommandEntry(
                "ingest.events:ingest_events",
                "Count job events per hour from files, or (--live) from Elasticsearch, event logs, jobs, Graphite and Grafana.",
            ),
        },
    ),
    "jobs": GroupEntry(
        "Which jobs will fail, why, and what to request instead.",
        {
            "train": CommandEntry(
                "jobs.forecasts:train",
                "Train a model of each moment that there are enough jobs for, on all jobs of the site, and make them current.",
            ),
            "list": CommandEntry(
                "jobs.table:list_jobs", "List the jobs of the site, the newest first, with the latest risk of each."
            ),
            "show": CommandEntry(
                "jobs.check:why", "Explain what happened to a job, what was known in time, and what to change.", brief=True
            ),
            "predict": CommandEntry(
                "jobs.forecasts:predict", "Forecast which pending and running jobs will fail, highest risk first."
            ),
            "explain": CommandEntry(
                "jobs.forecasts:explain",
                "Rank what raises and lowers the risk of one job (exact TreeSHAP), as list and waterfall.",
            ),
            "advise": CommandEntry(
                "jobs.forecasts:advise",
                "Advise what to request when a job is submitted again, with the past jobs that support it.",
            ),
            "evaluate": CommandEntry(
                "jobs.evaluate:evaluate",
                "Evaluate how good the forecasts would have been, compared with trivial rules; nothing from the future is used.",
            ),
            "profiles": CommandEntry("jobs.studies:profiles", "Find the kinds of jobs that a site runs, and how each ends."),
            "features": CommandEntry(
                "jobs.studies:features",
                "Rank the features by correlation with failure and by effect on the forecast.",
            ),
            "trends": CommandEntry("jobs.studies:trends", "Follow failure rates over time, and name those that changed."),
            "waste": CommandEntry(
                "jobs.studies:waste", "Add up the core-hours lost to failed jobs, and what cancelling early would have saved."
            ),
        },
    ),
    "traces": GroupEntry(
        "What CPU threads, jobs and nodes are doing, and whether it is normal.",
        {
            "train": CommandEntry("traces.models:train", "Train a model on the windows of the site and make it current."),
            "score": CommandEntry(
                "traces.models:score",
                "Score the windows that the current model has not scored, and name the most abnormal nodes, threads and jobs.",
            ),
            "map": CommandEntry("traces.models:show_map", "Show the windows of each job type on the map of the model."),
            "diagnose": CommandEntry(
                "traces.models:show_diagnosis",
                "Explain unusual nodes, list jobs near Bad IO or in a named region, and show similar past windows.",
            ),
            "label": CommandEntry(
                "traces.models:label",
                "Name a problem by windows that show it: similar windows are reported by that name and never learnt as normal.",
            ),
            "regions": CommandEntry("traces.models:regions", "List the named problems, or remove one."),
            "evaluate": CommandEntry(
                "traces.studies:evaluate",
                "Train ensembles and the detector on campaigns and judge them: errors, separability, speed, injected faults.",
            ),
            "sampling": CommandEntry(
                "traces.studies:sampling",
                "Recommend a scrape interval and a window length, from the spectra of job types and their separation.",
            ),
        },
    ),
    "events": GroupEntry(
        "Whether the cluster as a whole is in normal operation: alarms from counts of job events.",
        {
            "train": CommandEntry("events.models:train", "Train a model on the site's event counts and make it current."),
            "score": CommandEntry(
                "events.models:score",
                "Score the buckets that the current model has not scored, and report what is wrong, since when, and where.",
            ),
            "show": CommandEntry(
                "events.show:show",
                "Print the queries that count events, and the table: kinds as columns, gaps with their reason.",
            ),
            "label": CommandEntry(
                "events.label:label",
                "Label an outage, a maintenance or a normal time: by hand, from a file of incidents, or from Grafana.",
            ),
            "evaluate": CommandEntry(
                "events.evaluate:evaluate",
                "Evaluate event models and baselines on a simulated cluster, or on recorded counts with outages injected.",
            ),
        },
    ),
    "synth": GroupEntry(
        "Synthetic jobs like a site's own, with the same order and timing, safe to share.",
        {
            "fit": CommandEntry(
                "synth.fit:fit",
                "Learn a workload: when jobs come, in which order, and what they request; user names are not stored.",
            ),
            "sample": CommandEntry(
                "synth.sample:sample",
                "Generate new jobs like those a model was fitted on; user, group and account names are new.",
            ),
            "evaluate": CommandEntry(
                "synth.quality:evaluate",
                "Evaluate a synthetic log against a real one, or a generator on odd and even weeks of a log.",
            ),
            "compare": CommandEntry(
                "synth.quality:compare",
                "Compare real and synthetic jobs: the distribution of every column, the intervals, the rhythm of the week.",
            ),
        },
    ),
    "alarms": GroupEntry(
        "Incidents: what is wrong with the cluster, since when, and the suspected cause.",
        {
            "list": CommandEntry(
                "alarms.incidents:list_alarms", "List the incidents, the newest first: those that are open, or all."
            ),
            "show": CommandEntry(
                "alarms.incidents:show",
                "Show one incident in full: evidence, time line, what people did, lost jobs, similar past incidents.",
            ),
            "ack": CommandEntry(
                "alarms.acts:acknowledge", "Acknowledge an incident; it stays on the list, and others see that it is yours."
            ),
            "confirm": CommandEntry(
                "alarms.acts:confirm", "Confirm that an incident is real; your note is shown when the same happens again."
            ),
            "dismiss": CommandEntry(
                "alarms.acts:dismiss", "Dismiss a false alarm: it is resolved and stays so, also when more of the same is found."
            ),
            "withdraw": CommandEntry("alarms.acts:withdraw", "Withdraw the verdict on an incident, with its effects."),
            "note": CommandEntry("alarms.acts:note", "Add a note to an incident; its state does not change."),
            "ask": CommandEntry(
                "alarms.incidents:ask", "Show the cases whose answer helps the models most, also below the threshold."
            ),
            "answer": CommandEntry(
                "alarms.incidents:answer", "Answer a case: models learn from it at their next training, alarms at once."
            ),
            "mute": CommandEntry(
                "alarms.acts:mute", "Send no messages about a subject for a time; its incidents are still listed."
            ),
            "unmute": CommandEntry("alarms.acts:unmute", "End the mute of a subject at once."),
            "mutes": CommandEntry("alarms.acts:mutes", "List what is muted: until when, by whom, and why."),
            "replay": CommandEntry(
                "alarms.incidents:replay",
                "Replay the site's own past without looking ahead: which incidents, and when each would have been known.",
            ),
        },
    ),
    "notify": GroupEntry(
        "Who gets messages about incidents, and whether each was delivered.",
        {
            "test": CommandEntry(
                "alarms.notify:send_test",
                "Send a test message to each route and report the result; exit code 1 if one was not accepted.",
            ),
            "list": CommandEntry("alarms.notify:list_messages", "List messages and their delivery state, the newest first."),
            "rules": CommandEntry(
                "alarms.notify:rules",
                "Print rules for Prometheus that notice a dead watch, a source that lags, and messages that do not arrive.",
            ),
        },
    ),
    "actions": GroupEntry(
        "Automatic actions on jobs and nodes, with safety checks: off unless a policy is armed.",
        {
            "status": CommandEntry(
                "actions:status",
                "Show the switch, and for each policy whether it is armed, its ledger, and missing privileges.",
            ),
            "list": CommandEntry(
                "actions:list_actions", "List decisions and actions, the newest first, with the scheduler's output."
            ),
            "show": CommandEntry(
                "actions:show", "Show one action in full: its reasons, every command with its output, and how to revert it."
            ),
            "ledger": CommandEntry(
                "actions:ledger",
                "Show what a policy's dry run would have saved and lost, in core-hours, and what is missing to arm it.",
            ),
            "arm": CommandEntry(
                "actions:arm",
                "Arm a policy after its dry run; a change of its settings disarms it.",
            ),
            "disarm": CommandEntry("actions:disarm", "Disarm a policy: it returns to its dry run, decides and does nothing."),
            "off": CommandEntry(
                "actions:off", "Stop all actions at once, for policies and people, also when the database is down."
            ),
            "on": CommandEntry("actions:on", "Allow armed policies and people to act again."),
            "test": CommandEntry(
                "actions:show_plan",
                "Show what a policy would do now, with its commands and the privilege it needs; nothing is executed.",
            ),
            "cancel": CommandEntry(
                "actions:cancel",
                "Cancel a job with your own privileges at the scheduler; it is recorded, and the switch applies.",
            ),
        },
    ),
    "check": CommandEntry(
        "jobs.check:check",
        "Check a job script before it is submitted: can the cluster run it, how likely is it to fail, why, and what to change.",
        brief=True,
    ),
    "why": CommandEntry(
        "jobs.check:why", "Explain what happened to a job, what was known in time, and what to change.", brief=True
    ),
    "top": CommandEntry("top:top", "Watch incidents, jobs at risk, jobs and sources on this terminal, until q."),
    "watch": CommandEntry(
        "watch:watch", "Predict every job live, at submission, at start and two minutes later, and raise incidents; until Ctrl-C."
    ),
    "serve": CommandEntry("serve:serve", "Serve the dashboard and the API of the site, until Ctrl-C."),
    "models": GroupEntry(
        "List, promote and roll back models.",
        {
            "list": CommandEntry("models:list_models", "List the trainings: how they compare, which is in use, and why."),
            "show": CommandEntry(
                "models:show", "Show everything that is known about a training, or about the versions of one model."
            ),
            "promote": CommandEntry("models:promote_models", "Put the models of a training in use, all together."),
            "rollback": CommandEntry("models:rollback", "Go back to the models that were in use before."),
            "shadow": CommandEntry(
                "models:shadow",
                "Let a training score in parallel with the model in use, at night; its scores never raise alarms.",
            ),
            "repeat": CommandEntry(
                "models:repeat",
                "Repeat a training from its record, and report whether the files are the same; nothing is put in use.",
            ),
        },
    ),
    "nightly": CommandEntry(
        "models:nightly",
        "Train again and use the new model if it is better; then delete what is too old, and compact the tables.",
    ),
    "waste": CommandEntry(
        "jobs.studies:waste", "Add up the core-hours lost to failed jobs, and what cancelling early would have saved."
    ),
    "me": CommandEntry(
        "own:me", "Show one person's page: failures beside those of people alike, waste, what to change, incidents."
    ),
    "digest": CommandEntry("own:digest", "Ask for the weekly digest by mail, or give it up."),
    "tokens": GroupEntry(
        "Create and revoke tokens for users and programs.",
        {
            "add": CommandEntry("tokens:add", "Create a token and print it, once: only its digest is stored."),
            "create": CommandEntry(
                "tokens:create",
                "Create a token of your own and print it, once; without a site, the service makes it for whom the kernel says "
                "you are.",
            ),
            "list": CommandEntry("tokens:list_tokens", "List the tokens: whose they are, what they may do, until when."),
            "revoke": CommandEntry(
                "tokens:revoke", "Revoke a token; a running server refuses it, and those logged in with it, within a second."
            ),
        },
    ),
    "exporter": CommandEntry(
        "exporter:exporter",
        "Export CPU modes of every thread, the use of each job, and which job has which thread to Prometheus.",
    ),
    "rehearse": CommandEntry(
        "rehearse:rehearse",
        "Inject faults into a copy of the site's own history: which ones the watch would detect, and how late.",
    ),
    "campaign": GroupEntry(
        "Labelled recordings of CPU traces.",
        {
            "run": CommandEntry(
                "campaign:run", "Run jobs of known types on this machine, record its CPUs, and write the recording with labels."
            ),
            "simulate": CommandEntry("campaign:simulate", "Write simulated campaigns, in the layout of recorded ones."),
        },
    ),
    "report": CommandEntry(
        "report:report",
        "Write every table and figure of the published studies, from one's own data beside their numbers, into one HTML file.",
    ),
    "store": GroupEntry(
        "Compact, prune, back up and restore the site's data, or delete a user from it.",
        {
            "compact": CommandEntry("store:compact", "Merge small files and delete those unused for a week."),
            "retain": CommandEntry("store:retain", "Delete jobs submitted, and events counted, longer ago than is to be kept."),
            "backup": CommandEntry("store:backup", "Write the whole site to one file."),
            "restore": CommandEntry(
                "store:restore", "Create a new site (the folder of --site) from a backup; its state goes into the same folder."
            ),
            "forget": CommandEntry("store:forget", "Delete everything about a user, and refuse new records; asks before."),
        },
    ),
    "sql": CommandEntry(
        "store:sql",
        "Query the site's tables (jobs, predictions, quarantine, …; --tables lists them) in SQL; nothing can be changed.",
    ),
}
