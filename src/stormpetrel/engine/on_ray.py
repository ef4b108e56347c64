"""Workers on a Ray cluster: the one file that knows Ray.

RayWorkers(function, place, most, shared) -> a crew of OrderedPool. A worker is an actor with one CPU and one thread, in a process
of its own. One that dies is replaced by another one, on whichever node has room, and its item is tried again. Function, items and
results travel as pickles, between this process and its own workers only (docs/adr/0031): so we join a cluster only with a token,
and a worker works only where the cluster demands one, all addresses are private, and the code is the same as ours.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import logging
import os
import platform
import secrets
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from stormpetrel.engine.ordered_pool import Kind, Message
from stormpetrel.engine.places import is_client_address
from stormpetrel.engine.work import INSIDE, SINGLE, Work, add_cpu_elsewhere, error_to_send, own_cpu_seconds
from stormpetrel.errors import EngineError, MissingExtraError, UsageError
from stormpetrel.private_files import create_private

TRIES: Final = 3  # of an item whose workers die
_WAIT_S: Final = 0.5  # between two looks at the progress
_COUNT_S: Final = 10.0  # between two looks at how large the cluster is
_REPORT_S: Final = 0.2  # a worker reports its progress no more often
_AUTH_MODE: Final = "RAY_AUTH_MODE"
_BY_TOKEN: Final = "token"  # noqa: S105 – the mode, not the token
# What sums and trees depend on: in other versions they may come to other figures.
_LIBRARIES: Final = ("numpy", "scipy", "polars", "scikit-learn", "xgboost-cpu", "xgboost", "numba", "torch", "onnxruntime")


class RayWorkers:
    """Actors of the cluster at `place`; `most` 0 is one for each CPU that it has at the time, also of nodes that join later."""

    tries = TRIES

    def __init__(self, function: Work[Any, Any], place: str, most: int, shared: Path | None) -> None:
        self._cluster = _connected(place)
        ray = self._cluster.ray
        self._function = ray.put(ray.cloudpickle.dumps(function))
        self._run = secrets.token_hex(8)
        self._most = most
        self._probe = None if shared is None else _leave_probe(shared)
        self._refs: dict[int, Any] = {}  # worker -> result in the making
        self._handed_out: list[int] = []  # to workers of which nobody has heard yet

    def size(self) -> int:
        """How many workers there can be now."""
        return self._most or self._cluster.cpus()

    def begin(self, worker: int, item: object) -> None:
        """Hand an item to this worker; Ray starts it where a CPU is free."""
        actor = self._cluster.worker(worker)
        content = self._cluster.ray.cloudpickle.dumps(item)
        probe = None if self._probe is None else str(self._probe)
        # In a list, a reference stays one: the function is fetched once, not with each item.
        self._refs[worker] = actor.work.remote(self._run, [self._function], content, _conditions(), probe)
        self._handed_out.append(worker)

    def messages(self, workers: Sequence[int]) -> Iterator[tuple[int, Message]]:
        """Wait a moment for results; then what workers told in between."""
        while self._handed_out:
            yield self._handed_out.pop(), Message(Kind.PROGRESS, (0.0, "handed to the cluster"))
        numbers = {self._refs[number]: number for number in workers}
        done, _ = self._cluster.ray.wait(list(numbers), num_returns=len(numbers), timeout=_WAIT_S)
        finished = {numbers[ref] for ref in done}
        for worker, share, text in self._cluster.progress(self._run):
            if worker in workers and worker not in finished:
                yield worker, Message(Kind.PROGRESS, (share, text))
        for worker in finished:
            yield worker, self._result(worker)

    def stop(self, busy: Sequence[int]) -> None:
        """End what runs; idle workers stay for the next call, and forget what they were handed."""
        self._refs.clear()
        self._cluster.dismiss(busy)
        if self._probe is not None:
            self._probe.unlink(missing_ok=True)

    def _result(self, worker: int) -> Message:
        ray, ref = self._cluster.ray, self._refs.pop(worker)
        try:
            kind, content = ray.cloudpickle.loads(ray.get(ref))
        except ray.exceptions.RayError as error:
            self._cluster.lose(worker)
            _raise_where_hopeless(error)
            return Message(Kind.DIED, f" ({_first_line(error)})")
        if kind is Kind.DONE:
            add_cpu_elsewhere(content[1])
        return Message(kind, content)


class _Cluster:
    """The cluster that this process is connected to, and the workers that it has there; they end with this process."""

    def __init__(self, ray: Any, place: str) -> None:
        self.ray = ray
        self.place = place
        self._workers: dict[int, Any] = {}
        self._cpus = 0
        self._counted_s = -_COUNT_S
        self._board = ray.remote(_Board).options(num_cpus=0).remote()
        self._look: Any = None

    def cpus(self) -> int:
        """The CPUs of all nodes that are up."""
        if time.monotonic() - self._counted_s >= _COUNT_S:
            self._cpus = int(self.ray.cluster_resources().get("CPU", 0))
            self._counted_s = time.monotonic()
        if self._cpus < 1:
            raise EngineError("The Ray cluster has no CPU to work with.", hint="Look with: ray status")
        return self._cpus

    def worker(self, number: int) -> Any:
        """The worker of this number, which begins where it is not there."""
        if number not in self._workers:
            kind = self.ray.remote(_Worker).options(num_cpus=1, max_restarts=0, max_task_retries=0)
            self._workers[number] = kind.remote(number, self._board)
        return self._workers[number]

    def progress(self, run: str) -> list[tuple[int, float, str]]:
        """What workers reported since the last look; a look that takes longer than we want to wait is for the next time."""
        if self._look is None:
            self._look = self._board.take.remote()
        if not self.ray.wait([self._look], timeout=0)[0]:
            return []
        look, self._look = self._look, None
        try:
            reports: dict[int, tuple[str, float, str]] = self.ray.get(look)
        except self.ray.exceptions.RayError:  # the node of the board is gone: progress is lost, results are not
            self._board = self.ray.remote(_Board).options(num_cpus=0).remote()
            return []
        return [(worker, share, text) for worker, (of, share, text) in reports.items() if of == run]

    def lose(self, number: int) -> None:
        """Forget a worker that died; the next of its number is another one."""
        self._end(self._workers.pop(number))

    def dismiss(self, busy: Sequence[int]) -> None:
        """End the busy ones, and let the others forget."""
        for number in busy:
            if number in self._workers:
                self.lose(number)
        for worker in self._workers.values():
            worker.forget.remote()

    def close(self) -> None:
        """Leave the cluster; what runs there for us ends."""
        for number in list(self._workers):
            self.lose(number)
        self.ray.shutdown()

    def _end(self, worker: Any) -> None:
        with suppress(self.ray.exceptions.RayError, ValueError):  # it is gone already
            self.ray.kill(worker)


_joined: dict[str, _Cluster] = {}  # by place; one at a time


def leave_cluster() -> None:
    """Leave the cluster that work was done on last; the next work joins again."""
    while _joined:
        _joined.popitem()[1].close()


def _connected(place: str) -> _Cluster:
    """The cluster at this place: joined once, and used by all later work of this process."""
    if place not in _joined:
        leave_cluster()
        _joined[place] = _Cluster(_join(place), place)
    return _joined[place]


def _join(place: str) -> Any:
    _require_token()
    # Before Ray is imported: it reads both while it is.
    os.environ[_AUTH_MODE] = _BY_TOKEN
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError(f"The engine {place!r}", "cluster") from error
    where = place if is_client_address(place) else os.environ.get("RAY_ADDRESS") or "auto"
    _refuse_public([where])
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # what it warns of, the error says
            ray.init(
                address=where, namespace="stormpetrel", log_to_driver=False, logging_level=logging.ERROR, configure_logging=False
            )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.RayError) as error:
        raise EngineError(
            f"The Ray cluster {'of this machine' if where == 'auto' else f'at {where}'} cannot be joined: {_first_line(error)}.",
            hint="Is it up (ray status), is its token ours (docs/cluster-engine), and are Python and Ray of the same versions?",
        ) from error
    _keep_out_of_our_output()
    try:
        _refuse_public([node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]])
    except EngineError:
        ray.shutdown()
        raise
    return ray


def _require_token() -> None:
    """A cluster is joined with a token, from the environment or from a file that nobody else can read."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        mode = path.stat().st_mode
    except OSError:
        raise UsageError(
            "There is no token for the Ray cluster.",
            hint="Make one with `ray get-auth-token --generate`, and give every node the same (RAY_AUTH_MODE=token).",
        ) from None
    if mode & 0o077:
        raise UsageError(
            f"Others can read the token of the Ray cluster, {path}.", hint=f"Run: chmod 600 {path}; better, make a new one."
        )


def _refuse_public(addresses: Sequence[str]) -> None:
    for address in addresses:
        host = address.removeprefix("ray://")
        host = host[1:].partition("]")[0] if host.startswith("[") else host.split(":")[0] if host.count(":") == 1 else host
        try:
            is_global = ipaddress.ip_address(host).is_global
        except ValueError:  # a name: its nodes' addresses are looked at when we have joined
            continue
        if is_global:
            raise EngineError(
                f"A node of the Ray cluster has the public address {host}.",
                hint="Start its nodes with --node-ip-address and an address of the private network.",
            )


def _keep_out_of_our_output() -> None:
    """Ray prints what its nodes report to standard output, even without log_to_driver; that is where answers go."""
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_arguments, **_named: None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")


def _raise_where_hopeless(error: BaseException) -> None:
    """A worker that could not even begin will not do so the next time either."""
    text = str(error)
    if "creation task" in text or "ModuleNotFoundError" in text:
        raise EngineError(
            f"A worker of the Ray cluster could not begin: {(text.strip().splitlines() or ['?'])[-1][:300]}",
            hint="Install the same Stormpetrel, with the extra 'cluster', in the Python that `ray start` runs in on every node.",
        ) from error


def _leave_probe(shared: Path) -> Path:
    """A file by which workers see whether a folder of ours is theirs too."""
    shared.mkdir(parents=True, exist_ok=True)
    probe = shared.resolve() / f".seen-by-workers-{secrets.token_hex(8)}"
    create_private(probe)
    return probe


@functools.cache
def _conditions() -> Mapping[str, str | None]:
    """What has to be the same for results to be the same: the code, Python, and what computes."""
    return {
        "Stormpetrel's code": _digest_of_code(),
        "Python": platform.python_version(),
        **{name: _version(name) for name in _LIBRARIES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _digest_of_code() -> str:
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


# --- in the processes of Ray ---------------------------------------------------------------------------------------------------


class _Board:
    """Where workers leave how far they are, and the driver looks from time to time: the last report of each."""

    def __init__(self) -> None:
        self._reports: dict[int, tuple[str, float, str]] = {}

    def leave(self, worker: int, run: str, share: float, text: str) -> None:
        """Replace what this worker has reported before."""
        self._reports[worker] = (run, share, text)

    def take(self) -> dict[int, tuple[str, float, str]]:
        """What was left since the last time."""
        reports, self._reports = self._reports, {}
        return reports


class _Worker:
    """Does one item after the other, in a process of one thread."""

    def __init__(self, number: int, board: Any) -> None:
        os.environ.update({**dict.fromkeys(SINGLE, "1"), INSIDE: "1"})  # before the libraries are imported that read it
        self._number = number
        self._board = board
        self._run = ""
        self._function: Work[Any, Any] | None = None
        self._reported_s = 0.0

    def work(self, run: str, function: list[Any], item: bytes, conditions: Mapping[str, str | None], probe: str | None) -> bytes:
        """The pickled (kind, content) of what came of an item; an error of the work is content too."""
        import ray

        dumps, loads = ray.cloudpickle.dumps, ray.cloudpickle.loads
        began_s = own_cpu_seconds()
        try:
            if run != self._run:
                self._check(conditions, probe)
                self._function, self._run = loads(ray.get(function[0])), run
            assert self._function is not None
            self._reported_s = 0.0
            self._report(0.0, f"on {platform.node()}")
            self._reported_s = 0.0  # what the item itself has to say first is not held back
            result = self._function(loads(item), self._report)
            return bytes(dumps((Kind.DONE, (result, own_cpu_seconds() - began_s))))
        except Exception as error:
            return self._error(error)

    def forget(self) -> None:
        """Let go of the function and what hangs on it."""
        self._function, self._run = None, ""

    def _report(self, share: float, text: str) -> None:
        if time.monotonic() - self._reported_s >= _REPORT_S:
            self._reported_s = time.monotonic()
            self._board.leave.remote(self._number, self._run, share, text)

    def _check(self, conditions: Mapping[str, str | None], probe: str | None) -> None:
        where = platform.node()
        if os.environ.get(_AUTH_MODE) != _BY_TOKEN:
            raise EngineError(
                f"Ray on {where} runs without authentication: whoever reaches it could run anything as you.",
                hint="Start every node with RAY_AUTH_MODE=token and the same token.",
            )
        other = {name: (ours, here) for name, here in _conditions().items() if (ours := conditions.get(name)) != here}
        if other:
            name, (ours, here) = next(iter(other.items()))
            versions = f"{ours or 'missing'} here, and {here or 'missing'} on {where} ({sys.executable})"
            raise EngineError(
                f"Results would not be the same: {name} is {versions}.",
                hint="Install the same versions on every node.",
            )
        if probe is not None and not Path(probe).exists():
            raise EngineError(
                f"The folder {Path(probe).parent} is not the same one on {where}.",
                hint="Name a folder on a file system that all nodes of the cluster share.",
            )

    def _error(self, error: Exception) -> bytes:
        """The error itself, or what it said where it cannot be sent."""
        import ray

        notes = error_to_send(error).__notes__
        try:
            content = ray.cloudpickle.dumps((Kind.FAILED, error))
            ray.cloudpickle.loads(content)
        except Exception:
            same = EngineError(f"{type(error).__name__}: {error}")
            same.__notes__ = notes
            content = ray.cloudpickle.dumps((Kind.FAILED, same))
        return bytes(content)
