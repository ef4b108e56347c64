"""The filter inside the real sbatch of several users: what they see, and that nothing ever keeps a job from being submitted."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parts import require
from tests.parts.slurm import RealSlurm
from tests.parts.submit_service import answering, socket_folder

FILTER = Path(__file__).parents[2] / "integrations/slurm/cli_filter.lua"
PLUGINS = ("/usr/lib/*/slurm-wlm/cli_filter_lua.so", "/usr/lib/*/lua/5.4/socket/unix.so")
SHOWN = "show\nStormpetrel: 61 % of such jobs fail.\n  Ask for 4 GB. (--mem=4G)\n"
ADDED_S = 1.0  # what a hung service may add to a submission on a machine that is busy; by itself it is 150 ms


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    require(*PLUGINS, install="slurm-client lua-socket")
    files = {"cli_filter.lua": FILTER.read_text()}
    with RealSlurm(nodes=1, accounting=False, settings={"CliFilterPlugins": "cli_filter/lua"}, more_files=files) as cluster:
        yield cluster


@pytest.fixture
def path() -> Iterator[Path]:
    with socket_folder("filter") as folder:
        yield folder / "api.sock"


def submit(slurm: RealSlurm, path: Path, *options: str, uid: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**slurm.env, "STORMPETREL_SOCKET": str(path), **environment}
    words = ["sbatch", "--hold", "--output=/dev/null", *options]
    command = words if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *words]
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("uid", [0, 65534])
def test_a_risky_job_gets_two_lines_and_is_submitted(slurm: RealSlurm, path: Path, uid: int) -> None:
    seen: list[bytes] = []
    with answering(path, SHOWN, seen=seen):
        done = submit(slurm, path, "--time=7", '--job-name=a\'; "$(id)"', "--wrap=true", uid=uid)
    assert done.returncode == 0 and "Submitted batch job" in done.stdout
    assert "61 % of such jobs fail." in done.stderr and "(--mem=4G)" in done.stderr
    assert b'"time":"00:07:00"' in seen[0] and rb"a'; \"$(id)\"" in seen[0]


def test_each_component_of_a_heterogeneous_job_is_judged(slurm: RealSlurm, path: Path) -> None:
    seen: list[bytes] = []
    with answering(path, SHOWN, seen=seen):
        done = submit(slurm, path, "--time=7", ":", "--time=8", "--wrap=true")
    assert done.returncode == 0 and "Submitted batch job" in done.stdout, done.stderr
    assert [b'"time":"00:07:00"' in one for one in seen] == [True, False] and b'"time":"00:08:00"' in seen[1]
    assert "Component 2:" in done.stderr and "Component 1:" not in done.stderr


def test_below_the_sites_risk_it_is_silent(slurm: RealSlurm, path: Path) -> None:
    with answering(path, "silent\n"):
        done = submit(slurm, path, "--wrap=true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_refusal_of_the_site_is_one(slurm: RealSlurm, path: Path) -> None:
    with answering(path, "refuse\nIt can never run.\n"):
        done = submit(slurm, path, "--wrap=true")
    assert done.returncode != 0 and "It can never run." in done.stderr and "Submitted" not in done.stdout


def test_who_does_not_want_it_is_left_alone(slurm: RealSlurm, path: Path) -> None:
    with answering(path, "refuse\nNo.\n"):
        assert submit(slurm, path, "--wrap=true", STORMPETREL_SUBMIT="off").returncode == 0


@pytest.mark.parametrize("answer", ["", "perhaps\nx\n", "show", "\0\xff", "refuse" * 10_000])
def test_a_strange_answer_keeps_nobody_from_submitting(slurm: RealSlurm, path: Path, answer: str) -> None:
    with answering(path, answer):
        assert submit(slurm, path, "--wrap=true").returncode == 0
    with answering(path, "refuse\nNo.\n", status="503 Busy"):
        assert submit(slurm, path, "--wrap=true").returncode == 0


def test_a_service_that_is_gone_or_hangs_costs_nothing_but_its_limit(slurm: RealSlurm, path: Path) -> None:
    def took_s() -> float:
        began = time.monotonic()
        assert submit(slurm, path, "--wrap=true").returncode == 0
        return time.monotonic() - began

    gone = min(took_s() for _ in range(3))
    with answering(path, None):
        hung = min(took_s() for _ in range(3))
    assert hung < gone + ADDED_S


def test_without_luasocket_everything_is_submitted(path: Path) -> None:
    require(*PLUGINS, install="slurm-client lua-socket")
    text = FILTER.read_text().replace('"socket.unix"', '"socket.none"')
    with (
        RealSlurm(
            nodes=1, accounting=False, settings={"CliFilterPlugins": "cli_filter/lua"}, more_files={"cli_filter.lua": text}
        ) as it,
        answering(path, "refuse\nNo.\n"),
    ):
        assert submit(it, path, "--wrap=true").returncode == 0
