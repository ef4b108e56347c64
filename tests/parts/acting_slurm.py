"""A Slurm that does what it is told by small scripts, and writes down what that was; an act on it, and jobs to act on.

`slurm = ActingSlurm(folder)`; `slurm.lists(7, "RUNNING")`; `slurm.calls()` -> what changed something.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

_ASK = 'case "$*" in *"show node"*) cat "$here/nodes.txt"; exit;; *"show config"*) cat "$here/config.txt"; exit;; esac'
_DO = 'echo "$(basename "$0") $*" >> "$here/calls.txt"; cat "$here/answer.txt"; exit $(cat "$here/code.txt")'
_SCRIPTS = {
    "squeue": 'cat "$here/queue.txt"',
    "sacctmgr": 'cat "$here/level.txt"',
    "sacct": "true",
    "scontrol": f"{_ASK}\n{_DO}",
    "scancel": _DO,
}


class ActingSlurm:
    """The scripts in a folder; until told otherwise it lists no job, knows two nodes, and agrees to everything."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        for name, text in _SCRIPTS.items():
            self.script(name, text)
        self.write("config.txt", "SlurmUser               = slurm(64030)\n")
        self.write("nodes.txt", "NodeName=n017 State=IDLE\nNodeName=n018 State=IDLE+DRAIN Reason=new disk\n")
        self.write("level.txt", "Administrator\n")
        self.lists()
        self.answers()

    @property
    def settings(self) -> dict[str, Any]:
        """The section `slurm` of a site that acts on it."""
        return {"sacct": str(self.folder / "sacct")}

    def script(self, name: str, text: str) -> None:
        """Put another program in the place of one."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\nhere='{self.folder}'\n{text}\n")
        path.chmod(0o755)

    def lists(self, state: str = "", submit: datetime | None = None, *, user: str = "ada", nodes: str = "n017") -> None:
        """What squeue says of whatever job it is asked about."""
        line = f"{state}|{int(submit.timestamp())}|{user}|{nodes}|\n" if submit else ""
        self.write("queue.txt", line)

    def answers(self, text: str = "", code: int = 0) -> None:
        """What commands that change something say."""
        self.write("answer.txt", text)
        self.write("code.txt", str(code))

    def calls(self) -> list[str]:
        """The commands that were to change something."""
        path = self.folder / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    def write(self, name: str, text: str) -> None:
        """Set what a script reads."""
        (self.folder / name).write_text(text)
