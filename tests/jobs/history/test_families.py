"""Which jobs do the same work, as far as their names tell."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.jobs.history.keys import family, stem
from tests.jobs.logs import made_jobs


def stem_of(name):
    return pl.DataFrame({"name": [name]}, schema={"name": pl.String}).select(stem(pl.col("name"))).item()


def family_of(**words):
    return made_jobs({"submit": 0, "job_name": None, "work_dir": None, **words}).select(family()).item()


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("train_model_17.sh", "train-model"),
        ("Train-Model-2024-03-04", "train-model"),
        ("fit.3f9ac01b77de", "fit"),
        ("größe_7", "größe"),
        ("12345", None),
        ("wrap", None),
        ("job.sh", None),
        ("run_3", None),
        ("", None),
        (None, None),
        ("\x00\x1f\n", None),
    ],
)
def test_a_stem_is_the_name_without_what_changes_from_run_to_run(name, left):
    assert stem_of(name) == left


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400))
def test_a_stem_of_any_text_is_short_and_has_letters_only(name):
    found = stem_of(name)
    assert found is None or (0 < len(found) <= 80 and not any(letter.isdigit() and letter.isascii() for letter in found))


def test_the_name_comes_first_then_the_script_then_the_directory_then_the_number():
    extra = {"executable": "7"}
    words = {"job_name": "fit_1", "script_path": "/home/ada/sweep_2.sh", "work_dir": "/data/mesh_3/", "extra": extra}
    assert family_of(**words) == "fit"
    assert family_of(**words | {"job_name": "wrap"}) == "sweep"
    assert family_of(**words | {"job_name": "12", "script_path": None}) == "mesh"
    assert family_of(extra=extra) == "application 7"
    assert family_of() is None
