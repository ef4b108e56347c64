"""The notebook: load, prepare, latest model, predict, look into one job; each step is one line, all of them one widget."""

from __future__ import annotations

from typing import Any

from stormpetrel.faces.notebook.incidents import (
    Incidents,
    IncidentView,
    act_on_alarm,
    alarms,
    cases,
    incident,
    judge_case,
    mute,
    replay_alarms,
    unmute,
)
from stormpetrel.faces.notebook.insight import JobInsight, look_into
from stormpetrel.faces.notebook.loading import LoadedJobs, load_jobs
from stormpetrel.faces.notebook.model import LatestModel, latest_model
from stormpetrel.faces.notebook.practice_site import make_practice_site
from stormpetrel.faces.notebook.predicting import predict
from stormpetrel.faces.notebook.preparing import PreparedJobs, prepare_jobs
from stormpetrel.faces.notebook.script_check import ScriptCheck, check_script
from stormpetrel.faces.notebook.waterfall import themed
from stormpetrel.faces.notebook.widget import EarlyWarning

__all__ = [
    "EarlyWarning",
    "IncidentView",
    "Incidents",
    "JobInsight",
    "LatestModel",
    "LoadedJobs",
    "PreparedJobs",
    "ScriptCheck",
    "act_on_alarm",
    "alarms",
    "cases",
    "check_script",
    "incident",
    "judge_case",
    "latest_model",
    "load_jobs",
    "look_into",
    "make_practice_site",
    "mute",
    "predict",
    "prepare_jobs",
    "replay_alarms",
    "themed",
    "unmute",
]


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext stormpetrel.faces.notebook`: bring in `%stormpetrel check job.sh` and `%%stormpetrel check`."""
    from stormpetrel.faces.notebook.magic import load_magic

    load_magic(ipython)
