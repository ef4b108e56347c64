"""The models of questions and answers: one set for everybody, in step with the frames that they are made of."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest
from pydantic import BaseModel

from stormpetrel.answers import schemas
from stormpetrel.answers.overview.job_table import COLUMNS
from stormpetrel.answers.schemas.base import Answer, build_models
from stormpetrel.answers.schemas.cluster import MOST_CORES
from stormpetrel.answers.schemas.health import Version
from stormpetrel.answers.schemas.history import PolicyPoint, QualityLine
from stormpetrel.answers.schemas.job_studies import PolicyReplay, RequestedPoint
from stormpetrel.answers.schemas.jobs import JobRow
from stormpetrel.answers.schemas.registry import ModelVersionLine, TrainedModel
from stormpetrel.events.capacity import capacity
from stormpetrel.lifecycle.running_quality import QUALITY_SCHEMA

MODULES = [f"{schemas.__name__}.{module.name}" for module in pkgutil.iter_modules(schemas.__path__)]


def models() -> list[type[BaseModel]]:
    """Every model of the room."""
    things = (thing for name in MODULES for thing in vars(importlib.import_module(name)).values())
    return [thing for thing in things if isinstance(thing, type) and issubclass(thing, BaseModel) and thing is not BaseModel]


def test_every_model_is_frozen():
    assert len(models()) > 60
    assert [model.__name__ for model in models() if not model.model_config.get("frozen")] == []


def test_a_service_builds_all_of_them_before_it_is_asked():
    build_models()
    assert [model.__name__ for model in models() if not model.__pydantic_complete__] == []


def test_they_import_pydantic_and_the_vocabulary_only():
    heavy = "{'polars', 'numpy', 'fastapi', 'sqlalchemy', 'deltalake', 'plotly', 'dash', 'typer', 'rich', 'httpx'}"
    code = f"import sys, {', '.join(MODULES)}; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_rows_have_the_columns_of_their_frames():
    assert list(JobRow.model_fields) == list(COLUMNS)
    assert list(QualityLine.model_fields) == list(QUALITY_SCHEMA)


def test_limits_are_those_of_the_families():
    assert MOST_CORES == capacity.MOST_CORES


def test_a_field_is_found_by_its_name_in_the_json():
    answer = Version(version="1", api="v1")
    assert answer["version"] == answer.version == "1"
    with pytest.raises(KeyError):
        answer["model_fields"]


def test_what_a_later_version_adds_is_left_out():
    assert Version.model_validate({"version": "2", "api": "v1", "more": True}) == Version(version="2", api="v1")
    assert issubclass(Version, Answer)


def test_what_is_kept_of_a_model_stands_beside_its_name_and_is_found_again():
    model = TrainedModel(
        name="jobs-submit", version=3, created="2026-03-02T12:00:00+00:00", about={"n_train": 5, "why": "by hand"}
    )
    printed = model.model_dump(mode="json")
    assert list(printed) == ["name", "version", "created", "n_train", "why"]
    assert TrainedModel.model_validate(printed) == model


def test_a_line_of_a_version_leaves_out_its_sentence():
    line = ModelVersionLine(name="m", version=1, created="c", current=True, about={"seed": 0}, summary="learnt from 5 jobs")
    assert line.model_dump() == {"name": "m", "version": 1, "created": "c", "current": True, "seed": 0}


def test_what_nobody_asked_for_is_no_key():
    point = {"tau": 0.5, "asked_tau": 0.6} | dict.fromkeys(PolicyPoint.model_fields.keys() - {"tau"}, 1)
    replay = dict.fromkeys(PolicyReplay.model_fields.keys() - {"asked"}, 1.0)
    assert "asked" not in PolicyReplay.model_construct(**replay).model_dump(warnings=False)
    assert PolicyReplay.model_construct(**replay, asked=RequestedPoint(**point)).model_dump(warnings=False)["asked"]["tau"] == 0.5
