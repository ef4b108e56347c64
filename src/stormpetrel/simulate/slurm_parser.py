"""How the commands of the simulated Slurm read their arguments, and refuse them as Slurm does."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn


class SlurmParser(argparse.ArgumentParser):
    """A parser of one command; every command takes `--feed`, the folder of the recorded feed."""

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, allow_abbrev=False, description=description)
        self.add_argument("--feed", required=True, help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Slurm exits 1 where argparse exits 2."""
        sys.stderr.write(f'{self.prog}: {message}\nTry "{self.prog} --help" for more information\n')
        sys.exit(1)
