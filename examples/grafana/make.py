"""Write the dashboards of this folder: `python examples/grafana/make.py`. This file is what is edited.

They are of Grafana's classic model (schemaVersion 39: Grafana 11; later ones convert it on import). Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
# Title, kind, unit, width, what it shows, then (query, legend) for each line.
Panel = tuple[str, str, str, int, str, Sequence[tuple[str, str]]]

P99 = "histogram_quantile(0.99, sum by (le) (rate({}_bucket[$__rate_interval])))"
MEDIAN = "histogram_quantile(0.5, sum by (le) (rate({}_bucket[$__rate_interval])))"
JOBS: Sequence[Panel] = (
    ("Jobs that wait or run", "stat", "short", 6, "", [("sum(stormpetrel_open_jobs)", "jobs")]),
    ("Flagged since the watch began", "stat", "short", 6, "Predictions at or above the threshold, of all moments",
     [('sum(stormpetrel_predictions_total{flagged="true"})', "flagged")]),
    ("PR area, two minutes in", "stat", "none", 6, "Running quality of settled predictions; beside it stands chance",
     [('max(stormpetrel_quality{figure="pr_auc",moment="2min",model_version="all"})', "PR area")]),
    ("Share of jobs that fail", "stat", "percentunit", 6, "Of the jobs whose predictions have settled",
     [('max(stormpetrel_quality{figure="failed_share",moment="2min",model_version="all"})', "failed")]),
    ("Predictions a minute", "timeseries", "short", 12, "By moment, flagged or not",
     [("sum by (moment, flagged) (rate(stormpetrel_predictions_total[$__rate_interval])) * 60",
       "{{moment}}, flagged: {{flagged}}")]),
    ("Delay of a prediction", "timeseries", "s", 12, "From a job's moment until its prediction can be read",
     [(P99.format("stormpetrel_prediction_delay_seconds"), "99 %"),
      (MEDIAN.format("stormpetrel_prediction_delay_seconds"), "half")]),
    ("Running quality", "timeseries", "none", 12, "PR area: higher is better; Brier and calibration error (ece): lower is better",
     [('stormpetrel_quality{figure=~"pr_auc|brier|ece",model_version="all",moment=~"$moment"}', "{{moment}}, {{figure}}")]),
    ("Job records an hour", "timeseries", "short", 12, "New, changed, and refused for their quality",
     [("sum by (kind) (rate(stormpetrel_records_total[$__rate_interval])) * 3600", "{{kind}}")]),
    ("CPUs that jobs keep busy", "timeseries", "short", 12, "Of the exporters on the nodes; one line per job, the busiest ten",
     [('topk(10, sum by (jobid) (rate(cgroup_cpu_total_seconds[$__rate_interval]) * on (instance, cgroup) '
       'group_left (jobid) cgroup_info{jobid=~"$job"}))', "job {{jobid}}")]),
    ("Memory of jobs", "timeseries", "bytes", 12, "What cannot be dropped, anonymous and shared; the largest ten",
     [('topk(10, sum by (jobid) ((cgroup_memory_rss_bytes + on (instance, cgroup) cgroup_memory_shmem_bytes) * '
       'on (instance, cgroup) group_left (jobid) cgroup_info{jobid=~"$job"}))', "job {{jobid}}")]),
)  # fmt: skip
NODES: Sequence[Panel] = (
    ("Nodes that are scraped", "stat", "short", 6, "", [("count(stormpetrel_exporter_info)", "nodes")]),
    ("Nodes whose threads cannot be told apart", "stat", "short", 6, "It is not known which job a CPU works for",
     [("count(stormpetrel_threads_told_apart == 0) or vector(0)", "nodes")]),
    ("CPU windows scored", "stat", "short", 6, "Since the watch began", [("sum(stormpetrel_windows_scored_total)", "windows")]),
    ("CPU windows flagged", "stat", "short", 6, "Above the threshold of the trace model",
     [("sum(stormpetrel_windows_flagged_total)", "windows")]),
    ("CPU time by mode", "timeseries", "percentunit", 12, "Of the chosen nodes together",
     [('sum by (mode) (rate(node_cpu_seconds_total{instance=~"$node",mode!="idle"}[$__rate_interval])) / scalar(count('
       'node_cpu_seconds_total{instance=~"$node",mode="idle"}))', "{{mode}}")]),
    ("Waiting for files", "timeseries", "percentunit", 12, "iowait of each node",
     [('avg by (instance) (rate(node_cpu_seconds_total{instance=~"$node",mode="iowait"}[$__rate_interval]))', "{{instance}}")]),
    ("Memory that is left", "timeseries", "percentunit", 12, "",
     [('node_memory_MemAvailable_bytes{instance=~"$node"} / node_memory_MemTotal_bytes', "{{instance}}")]),
    ("Pressure", "timeseries", "percentunit", 12, "Share of time in which some thread waited for memory or files",
     [('rate(node_pressure_memory_waiting_seconds_total{instance=~"$node"}[$__rate_interval])', "{{instance}}, memory"),
      ('rate(node_pressure_io_waiting_seconds_total{instance=~"$node"}[$__rate_interval])', "{{instance}}, files")]),
    ("Threads that work for a job", "timeseries", "short", 12, "Only where it is certain which job a thread works for",
     [('count by (instance) (stormpetrel_thread_job_info{instance=~"$node"})', "{{instance}}")]),
    ("What nodes do not tell", "timeseries", "short", 12, "stormpetrel exporter --check names the remedy",
     [('count by (instance, what) (stormpetrel_exporter_missing_info{instance=~"$node"}) or '
       '0 * stormpetrel_threads_told_apart{instance=~"$node"}', "{{instance}} {{what}}")]),
)  # fmt: skip
CLUSTER: Sequence[Panel] = (
    ("Watch ready", "stat", "bool_yes_no", 4, "1 while jobs are judged", [("min(stormpetrel_watch_ready)", "ready")]),
    ("Open incidents", "stat", "short", 8, "By severity", [("sum by (severity) (stormpetrel_open_incidents)", "{{severity}}")]),
    ("Alarm of the cluster", "stat", "bool_on_off", 4, "1 while the newest bucket of job events is an alarm",
     [("max(stormpetrel_grid_alarm)", "alarm")]),
    ("Sources that are not read", "stat", "short", 4, "", [("sum(1 - stormpetrel_source_up)", "sources")]),
    ("Behind the clock", "stat", "s", 4, "How far what has been judged lies behind the site's clock",
     [("max(stormpetrel_horizon_lag_seconds)", "lag")]),
    ("Open incidents over time", "timeseries", "short", 12, "By severity",
     [("sum by (severity) (stormpetrel_open_incidents)", "{{severity}}")]),
    ("Score of the newest bucket of events", "timeseries", "none", 12, "With the score from which there is an alarm",
     [("max(stormpetrel_grid_score)", "score"), ("max(stormpetrel_grid_threshold)", "threshold")]),
    ("Time since each source was last read well", "timeseries", "s", 12, "", [("stormpetrel_source_lag_seconds", "{{source}}")]),
    ("Messages that wait", "timeseries", "short", 12, "Not delivered yet, and refused by a receiver",
     [("max(stormpetrel_messages_waiting)", "waiting"), ("max(stormpetrel_messages_given_up)", "refused")]),
    ("Jobs that wait or run", "timeseries", "short", 12, "", [("sum(stormpetrel_open_jobs)", "jobs")]),
    ("CPU time of the nodes", "timeseries", "percentunit", 12, "Share that is not idle, of the nodes with an exporter",
     [('1 - avg(rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval]))', "busy")]),
)  # fmt: skip
WATCH: Sequence[Panel] = (
    ("Watch ready", "stat", "bool_yes_no", 8, "1 while jobs are judged", [("min(stormpetrel_watch_ready)", "ready")]),
    ("Behind the clock", "stat", "s", 8, "How far what has been judged lies behind the site's clock",
     [("max(stormpetrel_horizon_lag_seconds)", "lag")]),
    ("Last turn of the loop", "stat", "s", 8, "How long ago",
     [("time() - max(stormpetrel_watch_heartbeat_timestamp_seconds)", "ago")]),
    ("Duration of a turn of the loop", "timeseries", "s", 12, "",
     [(P99.format("stormpetrel_watch_step_seconds"), "99 %"), (MEDIAN.format("stormpetrel_watch_step_seconds"), "half")]),
    ("Problems and late predictions an hour", "timeseries", "short", 12, "",
     [("rate(stormpetrel_source_problems_total[$__rate_interval]) * 3600", "looks in vain"),
      ("sum by (moment) (rate(stormpetrel_predictions_late_total[$__rate_interval])) * 3600", "late, {{moment}}"),
      ('rate(stormpetrel_records_total{kind="quarantined"}[$__rate_interval]) * 3600', "records refused")]),
    ("Model versions in use", "timeseries", "none", 12, "", [("stormpetrel_model_version", "{{model}}")]),
    ("Trainings of a day", "timeseries", "short", 12, "",
     [("sum by (result) (increase(stormpetrel_trainings_total[1d]))", "{{result}}")]),
)  # fmt: skip
NODE = ("node", "Node", "label_values(stormpetrel_exporter_info, instance)")
JOB = ("job", "Job", "label_values(cgroup_info, jobid)")
MOMENT = ("moment", "Moment", "label_values(stormpetrel_quality, moment)")
# File -> title, panels, variables, pages of ours that belong to it.
DASHBOARDS: Mapping[str, tuple[str, Sequence[Panel], Sequence[tuple[str, str, str]], Mapping[str, str]]] = {
    "stormpetrel-jobs": ("Stormpetrel: jobs", JOBS, (MOMENT, JOB), {"Jobs": "/jobs", "Model": "/model"}),
    "stormpetrel-nodes": ("Stormpetrel: nodes", NODES, (NODE,), {"Nodes and traces": "/nodes"}),
    "stormpetrel-cluster": ("Stormpetrel: cluster", CLUSTER, (), {"Cluster": "/cluster", "Alarms": "/alarms"}),
    "stormpetrel-watch": ("Stormpetrel: the watch", WATCH, (), {"Health": "/health"}),
}


def main() -> None:
    """Write every file."""
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text_of(name), encoding="utf-8")


def text_of(name: str) -> str:
    """The JSON text of one dashboard."""
    title, panels, variables, pages = DASHBOARDS[name]
    return json.dumps(_dashboard(name, title, panels, variables, pages), indent=1) + "\n"


def _dashboard(
    name: str, title: str, panels: Sequence[Panel], variables: Sequence[tuple[str, str, str]], pages: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "title": title,
        "uid": name,
        "tags": ["stormpetrel"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "annotations": {"list": [_incidents()]},
        "templating": {"list": [_datasource(), _pages(), *(_variable(*variable) for variable in variables)]},
        "links": [*_own_links(pages), _other_dashboards()],
        "panels": list(_placed(panels, next(iter(pages.values())))),
    }


def _incidents() -> dict[str, Any]:
    """Open incidents as regions; the number leads to the page of the incident."""
    return {
        "name": "Incidents",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "expr": "stormpetrel_incident_open",
        "step": "60s",
        "titleFormat": "{{severity}}: {{kind}}",
        "textFormat": "Incident {{incident}}, cause: {{blame}}",
        "tagKeys": "severity,kind",
        "useValueForTime": False,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0, "current": {}}


def _pages() -> dict[str, Any]:
    """Where our own pages are, for links."""
    address = "http://127.0.0.1:8050"
    return {
        "name": "pages",
        "type": "textbox",
        "query": address,
        "label": "Stormpetrel's pages",
        "hide": 0,
        "current": {"text": address, "value": address},
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "hide": 0,
        "current": {"text": "All", "value": "$__all"},
    }


def _own_links(pages: Mapping[str, str]) -> list[dict[str, Any]]:
    common = {"type": "link", "icon": "external link", "targetBlank": True, "asDropdown": False, "includeVars": False,
              "keepTime": False, "tags": [], "tooltip": ""}  # fmt: skip
    return [{**common, "title": title, "url": "${pages}" + path} for title, path in pages.items()]


def _other_dashboards() -> dict[str, Any]:
    return {"type": "dashboards", "title": "Stormpetrel", "icon": "dashboard", "tags": ["stormpetrel"], "asDropdown": True,
            "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": ""}  # fmt: skip


def _placed(panels: Sequence[Panel], page: str) -> Iterator[dict[str, Any]]:
    """The panels in rows, from left to right."""
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        title, kind, unit, width, description, lines = panel
        height = 4 if kind == "stat" else 8
        if x + width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        yield {
            "id": number,
            "type": kind,
            "title": title,
            "description": description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {
                "defaults": {"unit": unit, "links": [{"title": "Stormpetrel", "url": "${pages}" + page, "targetBlank": True}]},
                "overrides": [],
            },
            "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if kind == "stat" else {"legend": {"displayMode": "list"}},
            "targets": [
                {"refId": "ABCDEFGH"[place], "expr": query, "legendFormat": legend, "datasource": DATASOURCE}
                for place, (query, legend) in enumerate(lines)
            ],
        }
        x, row_height = x + width, max(row_height, height)


if __name__ == "__main__":
    main()
