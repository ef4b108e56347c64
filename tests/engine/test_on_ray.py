"""The engine on a real Ray: the same results as here, workers and drivers that die, memory, and who may join."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from stormpetrel.answers.workload.input import make_generator
from stormpetrel.answers.workload.shards import write_shards
from stormpetrel.engine import Engine, Progress, cores, cpu_seconds, on_ray
from stormpetrel.engine.places import chosen_place
from stormpetrel.errors import EngineError, ModelError, UsageError
from stormpetrel.synth.contract import Wanted
from tests.parts import need, wait_until
from tests.parts.command_line import report_of, run_here
from tests.parts.ray import ROOT, RealRay
from tests.synth.made_workloads import made_workload

need("ray")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def ray():
    with RealRay() as real, pytest.MonkeyPatch.context() as patch:
        for name, value in real.environment().items():
            patch.setenv(name, value)
        yield real
        on_ray.leave_cluster()


def drawn(seed: int, progress: Progress) -> np.ndarray:
    """Some linear algebra on random numbers."""
    progress(0.5, "drawing")
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(200, 200))
    return np.linalg.svd(matrix @ matrix.T, compute_uv=False)


def test_results_are_those_of_local_workers_bit_by_bit_and_in_order(ray):
    told: list[str] = []
    here = list(Engine(2).map(drawn, range(6)))
    before = cpu_seconds()
    there = list(
        Engine(0, "ray").map(drawn, range(6), name=lambda n: f"seed {n}", progress=lambda _share, text: told.append(text))
    )
    assert [one.tobytes() for one in there] == [one.tobytes() for one in here]
    assert any(text.startswith("seed 5") for text in told) and told[0] == "2 at a time"
    assert cpu_seconds() > before


def one_thread(_item: int, _progress: Progress) -> tuple[int, str | None, int]:
    return cores(), os.environ.get("POLARS_MAX_THREADS"), len(list(Engine(3, "ray").map(squared, range(3))))


def squared(item: int, _progress: Progress) -> int:
    return item * item


def test_a_worker_has_one_core_and_no_workers_of_its_own(ray):
    assert list(Engine(1, "ray").map(one_thread, [0])) == [(1, "1", 3)]


def failing(item: int, _progress: Progress) -> int:
    if item == 2:
        raise ModelError("It is too small.", hint="Take more.")
    return item


def test_an_error_tells_the_item_that_it_happened_at(ray):
    with pytest.raises(ModelError) as caught:
        list(Engine(1, "ray").map(failing, range(5), name=lambda item: f"seed {item}"))
    assert str(caught.value) == "seed 2: It is too small. Take more." and "failing" in "".join(caught.value.__notes__)


class _UnsendableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("two numbers")


def unsendable(_item: int, _progress: Progress) -> int:
    raise _UnsendableError(1, 2)


def test_an_error_that_cannot_be_sent_is_told_in_words(ray):
    with pytest.raises(EngineError, match="_UnsendableError: two numbers"):
        list(Engine(1, "ray").map(unsendable, range(2)))


def dying_once(item: tuple[int, Path], _progress: Progress) -> int:
    number, folder = item
    tries = folder / str(number)
    if number == 1 and not tries.exists():
        tries.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_a_worker_that_is_killed_is_replaced_and_its_item_tried_again(ray, tmp_path, capfd):
    told: list[str] = []
    items = [(number, tmp_path) for number in range(6)]
    results = Engine(2, "ray").map(
        dying_once, items, name=lambda item: f"n {item[0]}", progress=lambda _, text: told.append(text)
    )
    assert list(results) == [0, 1, 4, 9, 16, 25]
    assert any(text.startswith("n 1: its worker died") and text.endswith("try 2 of 3") for text in told)
    assert capfd.readouterr().out == ""  # Ray reports the death of a worker too, but not where answers are printed


class Carried:
    """Work that brings a large array along, and gives as large ones back: more than the object store holds."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __call__(self, item: np.ndarray, _progress: Progress) -> np.ndarray:
        self.values[0] = item[0]  # it is a copy of its own, as in a local worker: it can be written to
        item += self.values
        return item


def test_more_than_the_object_store_holds_goes_through_its_spill_to_disk(ray):
    size = 3_000_000  # 24 MB each: function, items and results are many times the store of 80 MB
    items = [np.full(size, float(number)) for number in range(4)]
    results = Engine(2, "ray").map(Carried(np.ones(size)), items, name=lambda item: str(item[0]))
    assert [(float(one[0]), float(one.sum())) for one in results] == [
        (2.0 * n, 2.0 * n + (size - 1) * (n + 1.0)) for n in range(4)
    ]


def waiting(item: Path, _progress: Progress) -> str:
    if item.name != "first":
        item.write_text(str(os.getpid()))
        time.sleep(120)
    return item.name


def test_a_caller_who_takes_no_more_stops_what_runs(ray, tmp_path):
    second = tmp_path / "second"
    results = Engine(2, "ray").map(waiting, [tmp_path / "first", second])
    assert next(results) == "first"
    wait_until(lambda: second.exists() and bool(second.read_text()), "the second one runs", limit_s=60)
    results.close()
    wait_until(lambda: not Path(f"/proc/{second.read_text()}").exists(), "its process is gone", limit_s=60)


def test_a_command_answers_the_same_and_does_not_work_out_again_what_was_kept(ray, tmp_path):
    command = ["events", "evaluate", "--hours", "1680", "--seeds", "3", "--models", "seasonal,pca", "--json"]
    here = report_of(run_here(tmp_path, *command, "--workers", "2"))
    there = report_of(run_here(tmp_path, *command, "--engine", "ray", "--keep", str(tmp_path / "kept")))
    assert without_seconds(there) == without_seconds(here)
    assert len(list((tmp_path / "kept").iterdir())) == 3
    ray_is_not_needed = report_of(run_here(tmp_path, *command, "--keep", str(tmp_path / "kept")))
    assert ray_is_not_needed == there  # to the seconds that it took: they are those of the first run


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(part) for key, part in value.items() if not key.endswith(("_s", "seconds"))}
    return value


def test_parts_of_a_synthetic_log_are_the_same_files(ray, tmp_path):
    generator = make_generator("sessions", seed=0).fit(made_workload(600, weeks=4))
    wanted = Wanted(days=12, start=datetime(2027, 3, 1, tzinfo=UTC), seed=4)
    for place in ("local", "ray"):
        write_shards(generator, wanted, 3, tmp_path / place, Engine(2, place))
    here, there = ([file.read_bytes() for file in sorted((tmp_path / place).glob("[pm]*.*"))] for place in ("local", "ray"))
    assert here == there and len(here) == 4


# --- who may join, and what a worker insists on --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_wrong_token_is_refused(ray):
    script = "from stormpetrel.engine import Engine\nlist(Engine(1, 'ray').map(abs, [1]))"
    env = {**os.environ, **ray.environment(), "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "EngineError: The Ray cluster at" in done.stderr


@pytest.fixture
def no_token(monkeypatch, tmp_path):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(on_ray, "_joined", {})
    return tmp_path / ".ray" / "auth_token"


def test_without_a_token_no_cluster_is_joined(no_token):
    with pytest.raises(UsageError, match="no token"):
        Engine(2, "ray").map(squared, range(2))


def test_a_token_that_others_can_read_is_not_used(no_token):
    no_token.parent.mkdir()
    no_token.write_text("f" * 64)
    no_token.chmod(0o644)
    with pytest.raises(UsageError, match="Others can read the token"):
        Engine(2, "ray").map(squared, range(2))


def test_a_public_address_is_not_joined(monkeypatch):
    monkeypatch.setattr(on_ray, "_joined", {})
    monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
    with pytest.raises(EngineError, match="public address"):
        Engine(2, "ray://8.8.8.8:10001").map(squared, range(2))


def test_a_cluster_is_public_where_any_of_its_nodes_is():
    on_ray._refuse_public(["10.0.0.1", "fd00::1", "auto", "ray://head:10001", "192.168.3.4:6379"])
    for public in ("131.225.1.1", "131.225.1.1:6379", "2a00:1450::1", "[2a00:1450::1]:6379", "ray://[2a00:1450::1]:10001"):
        with pytest.raises(EngineError, match="public address"):
            on_ray._refuse_public(["10.0.0.1", public])


@pytest.mark.parametrize(
    ("changed", "mode", "probe", "refusal"),
    [
        ({}, "", None, "runs without authentication"),
        ({"numpy": "1.0"}, "token", None, "Results would not be the same: numpy is 1.0 here"),
        ({"Stormpetrel's code": "f00"}, "token", None, "Results would not be the same: Stormpetrel's code"),
        ({}, "token", "/nowhere/probe", "The folder /nowhere is not the same one"),
    ],
)
def test_a_worker_refuses_to_work_where_it_should_not(monkeypatch, changed, mode, probe, refusal):
    worker = on_ray._Worker.__new__(on_ray._Worker)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(EngineError, match=refusal):
        worker._check({**on_ray._conditions(), **changed}, probe)


def test_where_a_cluster_is_named_auto_is_ray_and_else_it_is_here(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert chosen_place("auto") == "local"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert chosen_place("auto") == "ray"


# --- long proofs ---------------------------------------------------------------------------------------------------------------


def slow_square(item: int, progress: Progress) -> int:
    progress(0.1, f"pid {os.getpid()}")
    time.sleep(0.3)
    return item * item


@pytest.mark.slow
def test_workers_that_are_killed_again_and_again_change_no_result(ray):
    pids: dict[str, int] = {}  # item -> process that worked on it first

    def kill_some(_share: float, text: str) -> None:
        pid = re.fullmatch(r"(\d+): pid (\d+)", text)
        if pid and pid[1] not in pids and len(pids) < 6:
            pids[pid[1]] = int(pid[2])
            os.kill(int(pid[2]), signal.SIGKILL)

    assert list(Engine(2, "ray").map(slow_square, range(40), progress=kill_some)) == [n * n for n in range(40)]
    assert len(pids) == 6


@pytest.mark.slow
def test_a_node_that_goes_down_takes_no_result_with_it(ray):
    on_ray.leave_cluster()
    node = ray.join()
    wait_until(lambda: len([line for line in ray.processes() if line.name() == "raylet"]) == 2, "a second raylet", limit_s=60)
    seen: list[str] = []

    def take_it_down(share: float, text: str) -> None:
        seen.append(text)
        if share > 0.3 and node.process.poll() is None:
            ray.kill(node)

    assert list(Engine(4, "ray").map(slow_square, range(40), progress=take_it_down)) == [n * n for n in range(40)]
    assert node.process.poll() is not None


@pytest.mark.slow
def test_a_cluster_that_we_are_no_part_of_gives_the_same(ray):
    on_ray.leave_cluster()
    place = f"ray://127.0.0.1:{ray.client_port}"
    assert [one.tobytes() for one in Engine(2, place).map(drawn, range(3))] == [
        drawn(n, lambda *_: None).tobytes() for n in range(3)
    ]
    on_ray.leave_cluster()


_DRIVER = """
import sys
from pathlib import Path
from stormpetrel.engine import Engine, KeptResults
from stormpetrel.engine.codecs import JsonCodec
from tests.engine.test_on_ray import noted_square
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    kept = KeptResults(folder / "kept", {"study": 1}, JsonCodec(int))
    items = [(number, folder) for number in range(30)]
    print(list(Engine(2, "ray").map(noted_square, items, name=lambda item: f"n {item[0]}", kept=kept)))
"""


def noted_square(item: tuple[int, Path], _progress: Progress) -> int:
    number, folder = item
    with (folder / f"worked-{number}").open("a") as file:
        file.write("x")
    time.sleep(0.3)
    return number * number


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_where_it_was(ray, tmp_path):
    env = {**os.environ, **ray.environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", _DRIVER, str(tmp_path)]
    first = subprocess.Popen(command, env=env, start_new_session=True)
    wait_until(lambda: len(list((tmp_path / "kept").glob("*.result"))) >= 8, "eight results are kept", limit_s=120)
    first.kill()
    first.wait(10)
    kept = len(list((tmp_path / "kept").glob("*.result")))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[-2] == str([n * n for n in range(30)])
    twice = [file.name for file in tmp_path.glob("worked-*") if file.read_text() != "x"]
    assert 8 <= kept < 30 and len(twice) <= 4  # what was in work when the driver died
