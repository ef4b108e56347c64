"""A `sacct` of a recorded feed that takes 30 ms of processor time: the process is real, its answer is made in that of the tests.

`with answering() as address: write_quick_sacct(feed, address)`. The command that simulate/feed.py writes beside a feed says the
same and takes 700 ms, nearly all of them to import polars; a test that looks ten times at a feed waited for little else.

This file is also that command, started without site-packages: whatever it imports at its top costs every look.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def main() -> int:
    """Ask what the arguments ask; the exit status of sacct."""
    address, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(address)
        asked.sendall("\0".join([os.environ["SLURM_TIME_FORMAT"], *arguments]).encode())
        asked.shutdown(socket.SHUT_WR)
        with asked.makefile("rb") as answer:
            failed = answer.read(1) != b"0"
            (sys.stderr if failed else sys.stdout).buffer.write(answer.read())
    return int(failed)


def write_quick_sacct(feed: Path, address: str) -> None:
    """Put the quick command in the place of the one that lies beside a feed."""
    import shlex

    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), address, "--feed", str(feed.resolve())]
    (feed / "sacct").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')


@contextmanager
def answering(answer: Callable[..., str] | None = None) -> Iterator[str]:
    """Answer from threads of this process, until the end; where to ask. `answer` takes what `fake_sacct.answer` does."""
    import socketserver
    import tempfile
    import threading

    from stormpetrel.errors import StormpetrelError
    from stormpetrel.simulate.fakes import sacct as fake_sacct

    answer = answer or fake_sacct.answer

    class Question(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            times, *arguments = self.rfile.read().decode().split("\0")
            try:
                said = f"0{answer(arguments, times=times)}"
            except StormpetrelError as error:
                said = f"1sacct: error: {error.what}\n"
            with suppress(OSError):  # whoever asked was killed
                self.wfile.write(said.encode())

    with tempfile.TemporaryDirectory() as folder:  # the path of a socket is short
        address = f"{folder}/sacct"
        with socketserver.ThreadingUnixStreamServer(address, Question) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            thread.start()
            try:
                yield address
            finally:
                server.shutdown()
                thread.join()


if __name__ == "__main__":
    sys.exit(main())
