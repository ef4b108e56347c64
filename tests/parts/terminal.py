"""A real terminal (tmux) that shows a program: what is on it, keys, another size, how the program ended."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.parts import require, wait_until


class Terminal:
    """One window of a tmux server of its own."""

    def __init__(self, socket_path: Path, limit_s: float) -> None:
        self._command, self._limit_s = ["tmux", "-S", str(socket_path), "-f", "/dev/null"], limit_s

    def tmux(self, *words: str) -> str:
        """Run a command of tmux, and return what it prints."""
        return subprocess.run([*self._command, *words], capture_output=True, text=True, check=True, timeout=60).stdout

    @property
    def text(self) -> str:
        """What is on the terminal."""
        return self.tmux("capture-pane", "-p")

    def keys(self, *names: str) -> None:
        """Press keys, named as tmux does: `q`, `Down`, `Enter`."""
        self.tmux("send-keys", *names)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        self.tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def wait_for(self, *texts: str, without: str = "") -> str:
        """Wait until all of these are on the terminal, and return what is."""
        try:
            wait_until(lambda: self._shows(texts, without), f"{texts} on the terminal", limit_s=self._limit_s)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.text}") from None
        return self.text

    def _shows(self, texts: Sequence[str], without: str) -> bool:
        shown = self.text
        return all(text in shown for text in texts) and not (without and without in shown)

    def children(self) -> list[int]:
        """The processes of the window: the shell and what it runs."""
        shell = int(self.tmux("display-message", "-p", "#{pane_pid}"))
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(shell)], capture_output=True, text=True, check=False).stdout
        return [int(word) for word in listed.split()]


@contextmanager
def terminal(
    folder: Path, words: Sequence[str], *, env: Mapping[str, str], columns: int = 100, lines: int = 30, limit_s: float = 60.0
) -> Iterator[Terminal]:
    """Run a program on a terminal, and show how it ended once it has: `ended with 0`."""
    require("tmux", install="tmux")
    shown = Terminal(folder / "tmux.sock", limit_s)
    line = f"{shlex.join(words)}; echo ended with $?; exec sleep 600"
    whole = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh", **env}
    subprocess.run(
        [*shown._command, "-u", "new-session", "-d", "-x", str(columns), "-y", str(lines), line],
        env=whole, check=True, timeout=60, cwd=folder,
    )  # fmt: skip
    try:
        yield shown
    finally:
        subprocess.run([*shown._command, "kill-server"], check=False, timeout=60, stderr=sys.stderr)
