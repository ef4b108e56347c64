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
        "Simulate a small cluster, learn from it, and watch it live in the browser. Run again, it goes on where it was left.",
    ),
    "ingest": GroupEntry(
        "Read records into the site.",
        {
            "jobs": CommandEntry(
                "ingest.jobs:ingest_jobs", "Read job records from files, from standard input, or from a running Slurm (--live)."
            ),
            "traces": CommandEntry(
                "ingest.traces:ingest_traces",
                "Cut CPU traces into windows and keep them: from campaign files, or from a running Prometheus (--live).",
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
            "predict": CommandEntry(
                "jobs.forecasts:predict", "Forecast which of the jobs that wait or run now will fail, most likely first."
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
                "jobs.studies:features", "Rank the features: which go with failing, which move the forecast, and which can go."
            ),
            "trends": CommandEntry("jobs.studies:trends", "Follow failure rates over time, and name those that changed."),
            "waste": CommandEntry(
                "jobs.studies:waste", "Add up the core-hours that failed jobs held, and what cancelling early would have saved."
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
            "map": CommandEntry("traces.models:show_map", "Show where the windows of each job type lie on the map of the model."),
            "diagnose": CommandEntry(
                "traces.models:show_diagnosis",
                "Say what odd nodes do, who lies near Bad IO or in a region that somebody named, and past windows like these.",
            ),
            "label": CommandEntry(
                "traces.models:label",
                "Name a trouble by windows that show it: windows like them raise the name, and none of them is learnt as normal.",
            ),
            "regions": CommandEntry("traces.models:regions", "List the troubles that people have named, or take one back."),
            "evaluate": CommandEntry(
                "traces.studies:evaluate",
                "Train ensembles and the detector on campaigns and judge them: errors, separability, speed, injected faults.",
            ),
            "sampling": CommandEntry(
                "traces.studies:sampling",
                "Advise how often to scrape and how long windows should be, by the rhythm of job types and their separation.",
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
        "More jobs like a site's own, in an order like its own, safe to share.",
        {
            "fit": CommandEntry(
                "synth.fit:fit",
                "Learn a workload: when jobs come, in which order, and what they request; names of users are not kept.",
            ),
            "sample": CommandEntry(
                "synth.sample:sample",
                "Generate new jobs like those that a model has learnt from; user, group and account names are new.",
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
        "Incidents: what is wrong with the cluster, since when, and whose fault it probably is.",
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
                "alarms.acts:confirm", "Confirm that an incident is one; your note is shown when the same happens again."
            ),
            "dismiss": CommandEntry(
                "alarms.acts:dismiss", "Dismiss an incident that is none: it is over, also when more of the same is found."
            ),
            "withdraw": CommandEntry("alarms.acts:withdraw", "Withdraw the verdict on an incident, with what it taught."),
            "note": CommandEntry("alarms.acts:note", "Add a note to an incident; its state stays as it is."),
            "ask": CommandEntry(
                "alarms.incidents:ask", "Ask about the cases whose answer teaches most, also from below the threshold."
            ),
            "answer": CommandEntry(
                "alarms.incidents:answer", "Answer a case: models learn from it at their next training, alarms at once."
            ),
            "mute": CommandEntry(
                "alarms.acts:mute", "Send nothing about a subject for a time; its incidents are listed all the same."
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
        "Who gets messages about incidents, and what became of each message.",
        {
            "test": CommandEntry(
                "alarms.notify:send_test",
                "Send a test message along each route and report what happened; exit code 1 if one was not taken.",
            ),
            "list": CommandEntry("alarms.notify:list_messages", "List messages and what became of each, the newest first."),
            "rules": CommandEntry(
                "alarms.notify:rules",
                "Print rules for Prometheus that notice a dead watch, a source that lags, and messages that do not arrive.",
            ),
        },
    ),
    "actions": GroupEntry(
        "Acting on jobs and nodes, behind a safety catch: off unless a policy is armed.",
        {
            "status": CommandEntry(
                "actions:status",
                "Show the switch, and of each policy whether it acts, what its ledger says, and which right it lacks.",
            ),
            "list": CommandEntry(
                "actions:list_actions", "List what was decided and done, the newest first, with what the scheduler answered."
            ),
            "show": CommandEntry(
                "actions:show", "Show one act in full: what was known, every command with its answer, and how to take it back."
            ),
            "ledger": CommandEntry(
                "actions:ledger",
                "Show what a policy's dry run would have saved and lost, in core-hours, and what is missing to arm it.",
            ),
            "arm": CommandEntry(
                "actions:arm",
                "Let a policy act from now on, once its dry run is over; a change of its settings disarms it.",
            ),
            "disarm": CommandEntry("actions:disarm", "Let a policy run dry again: it decides, and does nothing."),
            "off": CommandEntry(
                "actions:off", "Stop everything at once, for policies and people, also where the database is away."
            ),
            "on": CommandEntry("actions:on", "Let armed policies and people act again."),
            "test": CommandEntry(
                "actions:show_plan",
                "Show what a policy would do at this moment, with its commands and the right that it needs; nothing is done.",
            ),
            "cancel": CommandEntry(
                "actions:cancel",
                "Cancel a job, with your own rights at the scheduler; it is kept who did it, and the switch holds.",
            ),
        },
    ),
    "check": CommandEntry(
        "jobs.check:check",
        "Check a job script before it is submitted: can the cluster run it, how likely is it to fail, why, and what to change.",
    ),
    "why": CommandEntry("jobs.check:why", "Explain what happened to a job, what was known in time, and what to change."),
    "watch": CommandEntry(
        "watch:watch", "Judge every job when it is submitted, when it starts and two minutes later, as they come; until Ctrl-C."
    ),
    "serve": CommandEntry("serve:serve", "Serve the dashboard and the API of the site, until Ctrl-C."),
    "models": GroupEntry(
        "Which models there are, and which are in use.",
        {
            "list": CommandEntry("models:list_models", "List the trainings: how they compare, which is in use, and why."),
            "show": CommandEntry(
                "models:show", "Show everything that is known about a training, or about the versions of one model."
            ),
            "promote": CommandEntry("models:promote_models", "Put the models of a training in use, all together."),
            "rollback": CommandEntry("models:rollback", "Go back to the models that were in use before."),
            "shadow": CommandEntry(
                "models:shadow",
                "Let a training score beside the model in use, at night; its scores are kept apart, and never alarm.",
            ),
            "repeat": CommandEntry(
                "models:repeat",
                "Train a training again from its record, and say whether the same files come out; nothing is put in use.",
            ),
        },
    ),
    "nightly": CommandEntry(
        "models:nightly",
        "Train again and use the new model if it is better; then delete what is too old, and compact the tables.",
    ),
    "tokens": GroupEntry(
        "Create and revoke tokens for users and programs.",
        {
            "add": CommandEntry("tokens:add", "Create a token and print it, once: only its digest is kept."),
            "list": CommandEntry("tokens:list_tokens", "List the tokens: whose they are, what they may do, until when."),
            "revoke": CommandEntry(
                "tokens:revoke", "Revoke a token; a running server refuses it, and those logged in with it, within a second."
            ),
        },
    ),
    "exporter": CommandEntry(
        "exporter:exporter",
        "Show Prometheus the CPU modes of every thread, what each job uses, and which job runs on which thread; until Ctrl-C.",
    ),
    "rehearse": CommandEntry(
        "rehearse:rehearse",
        "Put faults into a copy of the site's own history, and tell which the watch would see, how late, and which it would not.",
    ),
    "campaign": GroupEntry(
        "Labelled recordings of CPU traces.",
        {
            "run": CommandEntry(
                "campaign:run", "Run jobs of known types on this machine, record what its CPUs do, and write it down with labels."
            ),
            "simulate": CommandEntry("campaign:simulate", "Write simulated campaigns, in the layout of recorded ones."),
        },
    ),
    "report": CommandEntry(
        "report:report",
        "Write every table and figure about the jobs, and about traces and events where there are any, into one HTML file.",
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
            "forget": CommandEntry("store:forget", "Delete everything about a user, and take in nothing more; asks before."),
        },
    ),
    "sql": CommandEntry(
        "store:sql",
        "Query the site's tables (jobs, predictions, quarantine, …; --tables lists them) in SQL; nothing can be changed.",
    ),
}
