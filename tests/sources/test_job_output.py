"""The end of a job's own output: where it lies, and everything that is not read."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest

from stormpetrel.sources.job_output import TAIL_BYTES, output_path, read_tail

JOB = {"job_id": 12, "job_id_raw": 15, "array_task": None, "user": "wren", "job_name": "fit", "work_dir": "/home/wren/run"}
ME = os.getuid()


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({}, "/home/wren/run/slurm-15.out"),
        ({"array_task": 3}, "/home/wren/run/slurm-12_3.out"),
        ({"submit_line": "sbatch --output=log/%x-%j.txt job.sh"}, "/home/wren/run/log/fit-15.txt"),
        ({"submit_line": "sbatch -o /home/wren/%4j job.sh"}, "/home/wren/0015"),
        ({"submit_line": "sbatch -o %N.out job.sh"}, None),
        ({"work_dir": None}, None),
    ],
)
def test_the_path_is_that_of_slurm(values, path) -> None:
    found = output_path({**JOB, **values})
    assert (None if found is None else str(found)) == path


def test_the_end_of_a_file_is_read_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x" * (2 * TAIL_BYTES) + "the end\n")
    text = read_tail(PurePosixPath(tmp_path / "out"), folders=[str(tmp_path)], owner_uid=ME)
    assert text is not None and text.endswith("the end\n") and len(text) == TAIL_BYTES


def test_links_pipes_folders_other_owners_and_other_places_are_not_read(tmp_path: Path) -> None:
    allowed = tmp_path / "home"
    (allowed / "run").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (allowed / "own").write_text("own")
    (allowed / "link").symlink_to(tmp_path / "secret")
    (allowed / "hard").hardlink_to(tmp_path / "secret")
    (allowed / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(allowed / "pipe")
    names = ("link", "hard", "elsewhere/secret", "pipe", "run", "none", "../secret", "run/../../secret")
    read = {name: read_tail(PurePosixPath(f"{allowed}/{name}"), folders=[str(allowed)], owner_uid=ME) for name in names}
    assert read == dict.fromkeys(names)
    assert read_tail(PurePosixPath(tmp_path / "secret"), folders=[str(allowed)], owner_uid=ME) is None
    assert read_tail(PurePosixPath(allowed / "own"), folders=[str(allowed)], owner_uid=ME + 1) is None
    assert read_tail(PurePosixPath(allowed / "own"), folders=[str(allowed)], owner_uid=ME) == "own"
