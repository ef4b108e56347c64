"""The wrapper before the real sbatch of several users: what they see, and that nothing ever keeps a job from being submitted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import stormpetrel_client

from tests.parts import require
from tests.parts.slurm import RealSlurm
from tests.parts.submit_service import answering, socket_folder

WRAPPER = Path(__file__).parents[2] / "integrations/wrappers/stormpetrel-submit"
SHOWN = "show\nStormpetrel: 61 % of such jobs fail.\n  Ask for 4 GB. (--mem=4G)\n"
SCRIPT = "#!/bin/sh\n#SBATCH --time=7\ntrue 'a b' $(id)\n"
ADDED_S = 1.0  # what a hung service may add to a submission on a machine that is busy; by itself it is 150 ms


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    require("/usr/bin/python3", install="python3")
    with RealSlurm(nodes=1, accounting=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where the wrapper is installed, as an administrator would: first on PATH, the client beside it."""
    with socket_folder("wrapper") as made:
        install(made / "bin", "sbatch")
        (made / "fit.sh").write_text(SCRIPT)
        (made / "fit.sh").chmod(0o755)
        yield made


def install(folder: Path, name: str) -> None:
    folder.mkdir(mode=0o755)
    shutil.copy(WRAPPER, folder / name)
    (folder / name).chmod(0o755)
    shutil.copytree(Path(stormpetrel_client.__file__).parent, folder / "stormpetrel_client", ignore=lambda *_: ["__pycache__"])


def submit(
    slurm: RealSlurm, folder: Path, *words: str, uid: int = 0, given: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    env = {**slurm.env, "STORMPETREL_SOCKET": str(folder / "api.sock"), **environment}
    env["PATH"] = f"{folder / 'bin'}:{env['PATH']}"
    command = ["sbatch", "--hold", "--output=/dev/null", *words]
    if uid:
        command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]
    source = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False, timeout=60, **source)


def sent(seen: list[bytes]) -> dict[str, object]:
    return dict(json.loads(seen[-1].partition(b"\r\n\r\n")[2])["script"])


@pytest.mark.parametrize("uid", [0, 2, 65534])
def test_a_risky_job_gets_two_lines_and_is_submitted(slurm: RealSlurm, folder: Path, uid: int) -> None:
    seen: list[bytes] = []
    with answering(folder / "api.sock", SHOWN, seen=seen):
        done = submit(slurm, folder, "-c", "2", '--job-name=a\'; "$(id)"', str(folder / "fit.sh"), "x", "--time=9", uid=uid)
    assert done.returncode == 0 and "Submitted batch job" in done.stdout, done.stderr
    assert done.stderr == "sbatch: Stormpetrel: 61 % of such jobs fail.\nsbatch:   Ask for 4 GB. (--mem=4G)\n"
    script = sent(seen)
    assert (script["text"], script["name"], script["kind"]) == (SCRIPT, str(folder / "fit.sh"), "slurm")
    assert script["arguments"] == ["--hold", "--output=/dev/null", "-c", "2", '--job-name=a\'; "$(id)"']


def test_a_script_from_standard_input_is_judged_and_reaches_slurm_whole(slurm: RealSlurm, folder: Path) -> None:
    seen: list[bytes] = []
    long = SCRIPT + "# " + "x" * 400_000 + "\n#the-end\n"
    with answering(folder / "api.sock", SHOWN, seen=seen):
        done = submit(slurm, folder, "--parsable", given=long)
    assert done.returncode == 0 and "61 %" in done.stderr and str(sent(seen)["text"]).startswith(SCRIPT)
    written = subprocess.run(
        ["scontrol", "write", "batch_script", done.stdout.strip(), "-"], env=slurm.env, capture_output=True, text=True, check=True
    )
    assert written.stdout.rstrip("\n") == long.rstrip("\n")


def test_a_wrapped_command_and_the_environment_of_sbatch_are_judged(slurm: RealSlurm, folder: Path) -> None:
    seen: list[bytes] = []
    with answering(folder / "api.sock", "silent\n", seen=seen):
        done = submit(slurm, folder, "--wrap=hostname", SBATCH_TIMELIMIT="11")
    assert (done.returncode, done.stderr) == (0, "")
    script = sent(seen)
    assert script["text"] == "#!/bin/sh\nhostname\n" and "--time=11" in script["arguments"]  # type: ignore[operator]


def test_a_refusal_of_the_site_is_one_and_who_does_not_want_it_is_left_alone(slurm: RealSlurm, folder: Path) -> None:
    with answering(folder / "api.sock", "refuse\nIt can never run.\n"):
        done = submit(slurm, folder, "--wrap=true")
        assert done.returncode == 1 and "It can never run." in done.stderr and "Submitted" not in done.stdout
        assert submit(slurm, folder, "--wrap=true", STORMPETREL_SUBMIT="off").returncode == 0
        assert "usage" in submit(slurm, folder, "--help").stdout.lower()


@pytest.mark.parametrize("answer", ["", "perhaps\nx\n", "show", "\0\xff", "refuse" * 10_000])
def test_a_strange_answer_keeps_nobody_from_submitting(slurm: RealSlurm, folder: Path, answer: str) -> None:
    with answering(folder / "api.sock", answer):
        assert submit(slurm, folder, "--wrap=true").returncode == 0
    with answering(folder / "api.sock", "refuse\nNo.\n", status="503 Busy"):
        assert submit(slurm, folder, "--wrap=true").returncode == 0


def test_what_slurm_refuses_it_refuses_in_its_own_words(slurm: RealSlurm, folder: Path) -> None:
    with answering(folder / "api.sock", "silent\n"):
        done = submit(slurm, folder, "/nowhere/job.sh")
    assert done.returncode != 0 and "Unable to open file" in done.stderr and "Traceback" not in done.stderr


def test_a_service_that_is_gone_or_hangs_costs_nothing_but_its_limit(slurm: RealSlurm, folder: Path) -> None:
    def took_s() -> float:
        began = time.monotonic()
        assert submit(slurm, folder, "--wrap=true").returncode == 0
        return time.monotonic() - began

    gone = min(took_s() for _ in range(3))
    with answering(folder / "api.sock", None):
        hung = min(took_s() for _ in range(3))
    assert hung < gone + ADDED_S


def test_a_wrapper_that_is_broken_or_there_twice_is_no_obstacle(slurm: RealSlurm, folder: Path, tmp_path: Path) -> None:
    with socket_folder("broken") as other:
        install(other / "bin", "sbatch")
        shutil.rmtree(other / "bin/stormpetrel_client")
        env = {**slurm.env, "PATH": f"{other / 'bin'}:{folder / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sbatch", "--hold", "--wrap=true"], env=env, cwd="/", capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 0 and done.stderr == ""
