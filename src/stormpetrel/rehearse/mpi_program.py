"""The MPI job as a program: found compilers, compiled once per campaign, and the words that start it.

allreduce.c -> MPICH's compiler -> MpiProgram -> mpiexec, one rank per CPU.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from stormpetrel.errors import UsageError

_COMPILERS: Final = ("mpicc.mpich", "mpicc")
_STARTERS: Final = ("mpiexec.mpich", "mpiexec.hydra", "mpiexec")
_COMPILE_LIMIT_S: Final = 120.0
_ANSWER_LIMIT_S: Final = 20.0
_HOW: Final = (
    "Install MPICH (Debian: apt-get install mpich libmpich-dev gcc; RHEL: dnf install mpich-devel gcc, then module load mpi), "
    "or leave mpi out of --types."
)


@dataclass(frozen=True, slots=True)
class MpiProgram:
    """The compiled program and what starts it."""

    starter: str
    program: Path
    version: str

    def words(self, cpus: Sequence[int], seconds: float, seed: int) -> list[str]:
        """The command line of one job: a rank on each of the CPUs, all of them on this machine."""
        places = ",".join(map(str, cpus))
        return [self.starter, "-launcher", "fork", "-n", str(len(cpus)), str(self.program), f"{seconds:.3f}", str(seed), places]


def build_mpi_program(folder: Path) -> MpiProgram:
    """Compile the MPI job into a folder; UsageError where there is no MPICH."""
    starter, version = _find_starter()
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise UsageError("An MPI job needs MPICH's compiler, and there is no mpicc here.", hint=_HOW)
    program = folder / "allreduce"
    with as_file(files("stormpetrel.rehearse.workloads") / "allreduce.c") as source:
        words = [compiler, "-O2", "-o", str(program), str(source), "-lm"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_LIMIT_S, cwd=folder, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{compiler} cannot be run: {str(error)[:200]}.", hint=_HOW) from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[0][:200]
        raise UsageError(f"{compiler} cannot compile the MPI job: {said}.", hint=_HOW)
    return MpiProgram(starter, program, version)


def _find_starter() -> tuple[str, str]:
    """MPICH's mpiexec (its process manager is Hydra) and its version; Open MPI's does not know the same words."""
    others = []
    for path in filter(None, map(shutil.which, _STARTERS)):
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_ANSWER_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if "HYDRA" in done.stdout:
            version = next((line.split(":", 1)[1].strip() for line in done.stdout.splitlines() if "Version:" in line), "")
            return path, version[:40]
        others.append(path)
    found = f"{others[0]} is not MPICH's" if others else "there is no mpiexec here"
    raise UsageError(f"An MPI job needs MPICH, and {found}.", hint=_HOW)
