"""How good the alarm of the grid would have been, compared with simple ones; needs no site.

EventStudyQuestion -> study_events -> EventStudy: every data set, seed and model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zoneinfo import available_timezones

from stormpetrel.answers.schemas.events import EventStudy, EventStudyQuestion
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import UsageError
from stormpetrel.events.evaluation import ALL_NAMES, merged, summary
from stormpetrel.rehearse.event_study import Recipe, Recording, StudyPlan, read_recording, recordings_in, run_study


def study_events(
    question: EventStudyQuestion, *, progress: Callable[[float, str], None], engine: Engine = ONE_PROCESS
) -> EventStudy:
    """Judge models and baselines on recorded counts with outages injected or labelled, or on a simulated grid."""
    progress(0.0, "reading counts" if question.paths else "simulating")
    recordings = _recordings(question)
    recipes = _recipes(recordings, question)
    plan = StudyPlan(recipes, tuple(range(question.seeds)), tuple(question.models), engine=engine, keep=question.keep)
    runs = [run for some in run_study(plan, progress=progress) for run in some]
    notes = [f"{recording.name}: {note}" for recording in recordings for note in recording.notes]
    return EventStudy.model_validate({**summary(merged([], runs), order=ALL_NAMES), "notes": notes})


def _recordings(question: EventStudyQuestion) -> list[Recording]:
    if question.zone not in available_timezones():
        raise UsageError(f"{question.zone!r} is not a time zone.", hint="Write it as Europe/Berlin.")
    if question.outages and not question.paths:
        raise UsageError("--outages names the outages of a recording.", hint="Name the table of counts that they belong to.")
    paths = recordings_in(question.paths) if question.paths else []
    return [read_recording(path, question.format, zone=question.zone, outages=question.outages) for path in paths]


def _recipes(recordings: Sequence[Recording], question: EventStudyQuestion) -> tuple[Recipe, ...]:
    """How to make each data set; of a simulated grid where nothing was recorded."""
    plug_ins = tuple(question.plug_ins)
    if not recordings:
        return (Recipe(hours=question.hours, plug_ins=plug_ins),)
    return tuple(
        Recipe(recording.name, recording.series, has_labels=recording.has_labels, plug_ins=plug_ins) for recording in recordings
    )
