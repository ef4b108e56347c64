"""The notebook: load, prepare, latest model, predict, look into one job; each step is one line, all of them one widget."""

from __future__ import annotations

from stormpetrel.faces.notebook.incidents import Incidents, IncidentView, alarms, cases, incident, judge, judge_case
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
    "alarms",
    "cases",
    "check_script",
    "incident",
    "judge",
    "judge_case",
    "latest_model",
    "load_jobs",
    "look_into",
    "make_practice_site",
    "predict",
    "prepare_jobs",
    "themed",
]
