"""Random acts on a real Slurm, from a seed: what users do to a queue in an hour, in a minute.

`with SlurmActs(slurm, seed=1) as acts: acts.play(60)`; what Slurm refuses (a job that is over meanwhile) counts as an act that
came too late. Whatever the seed, the queue is at rest seconds after the last act, once nothing more starts
(`slurm.nothing_starts()`): what runs takes two seconds or ten minutes.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tests.parts.slurm import RealSlurm

Task = tuple[int, int | None, str]  # job id, task, "waits" or "runs"
_WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")


class SlurmActs:
    """Jobs of some users, submitted, held, released, requeued and cancelled in an order that a seed decides.

    As a context manager it cancels at the end what is left, and what went wrong in the block names the seed.
    """

    def __init__(self, slurm: RealSlurm, *, seed: int, users: Sequence[str] = ("",)) -> None:
        self.slurm, self.seed, self.random, self.users = slurm, seed, random.Random(seed), users
        self.jobs: list[int] = []
        self.arrays: dict[int, int] = {}  # job id -> tasks
        self.late = 0
        self._acts: list[tuple[int, Callable[[], None]]] = [
            (5, self.submit), (3, self.submit_held), (4, self.submit_array), (3, self.submit_dependent), (2, self.submit_later),
            (1, self.submit_together), (3, self.cancel), (3, self.cancel_task), (2, self.hold), (2, self.release),
            (2, self.requeue), (1, self.requeue_hold), (1, self.shorten), (1, self.suspend),
        ]  # fmt: skip

    def __enter__(self) -> SlurmActs:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(f"The acts were those of seed {self.seed}.")
        self.end()

    def play(self, count: int, between: Callable[[int], None] = lambda number: None) -> None:
        """Act so many times; `between` is called after each."""
        weights, acts = zip(*self._acts, strict=True)
        for number, act in enumerate(self.random.choices(acts, weights, k=count)):
            try:
                act()
            except RuntimeError:
                self.late += 1
            between(number)

    def end(self) -> None:
        """Cancel what is left."""
        for start in range(0, len(self.jobs), 100):
            with contextlib.suppress(RuntimeError):
                self.slurm.command("scancel", *map(str, self.jobs[start : start + 100]))

    def submit(self) -> None:
        self._submit(f"--wrap=sleep {self.random.choice((0, 1, 2, 600, 600))}")

    def submit_held(self) -> None:
        self._submit("--hold", "--wrap=sleep 1")

    def submit_array(self) -> None:
        tasks = self.random.choice((2, 5, 12, 40))
        ways = ("--hold",), (f"--array=0-{tasks - 1}%2",), (), ("--begin=now+1hour",)
        job = self._submit(f"--array=0-{tasks - 1}", *self.random.choice(ways), f"--wrap=sleep {self.random.choice((1, 600))}")
        self.arrays[job] = tasks

    def submit_dependent(self) -> None:
        kind = self.random.choice(("afterok", "afterany", "afternotok"))
        never = self.random.choice(((), ("--kill-on-invalid-dep=yes",)))
        self._submit(f"--dependency={kind}:{self._any()}", *never, "--wrap=sleep 1")

    def submit_later(self) -> None:
        self._submit(f"--begin=now+{self.random.choice((2, 3600))}", "--wrap=sleep 1")

    def submit_together(self) -> None:
        script = self.slurm.script(
            "together.sh", "#SBATCH --ntasks=1 --mem=10\n#SBATCH hetjob\n#SBATCH --ntasks=1 --mem=10\nsleep 2"
        )
        self._submit("--hold", script)

    def cancel(self) -> None:
        self.slurm.command("scancel", str(self._any()))

    def cancel_task(self) -> None:
        job = self.random.choice(list(self.arrays) or [0])
        first = self.random.randrange(self.arrays.get(job, 1))
        last = min(self.arrays.get(job, 1) - 1, first + self.random.choice((0, 0, 3)))
        self.slurm.command("scancel", f"{job}_[{first}-{last}]")

    def hold(self) -> None:
        self.slurm.command("scontrol", "hold", str(self._any()))

    def release(self) -> None:
        self.slurm.command("scontrol", "release", str(self._any()))

    def requeue(self) -> None:
        self.slurm.command("scontrol", "requeue", str(self._any()))

    def requeue_hold(self) -> None:
        self.slurm.command("scontrol", "requeuehold", str(self._any()))

    def shorten(self) -> None:
        self.slurm.command("scontrol", "update", f"jobid={self._any()}", "TimeLimit=30")

    def suspend(self) -> None:
        self.slurm.command("scontrol", self.random.choice(("suspend", "resume")), str(self._any()))

    def _any(self) -> int:
        return self.random.choice(self.jobs or [0])

    def _submit(self, *words: str) -> int:
        user = self.random.choice(self.users)
        job = self.slurm.submit("--mem=10", "--time=60", "--requeue", *words, user=user)
        self.jobs.append(job)
        return job


def seed_of_today() -> int:
    """A seed that is another one every day: what holds for any order of acts is tried with many of them."""
    return datetime.now(UTC).toordinal()


def queue_of(slurm: RealSlurm) -> set[Task]:
    """What `squeue -r` shows: every job and task that waits or runs."""
    rows = [row.split("|") for row in slurm.command("squeue", "-a", "-r", "-h", "-o", "%F|%K|%T").splitlines()]
    listed = {(int(job), None if task == "N/A" else int(task), state) for job, task, state in rows}
    return {(job, task, "waits" if state in _WAITS else "runs") for job, task, state in listed if state != "COMPLETING"}


def quiet(slurm: RealSlurm) -> bool:
    """Whether no job is on its way from one state to another."""
    with contextlib.suppress(subprocess.SubprocessError):
        return "COMPLETING" not in slurm.command("squeue", "-a", "-h", "-o", "%T")
    return False
