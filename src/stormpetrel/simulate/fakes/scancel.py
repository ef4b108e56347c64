"""A `scancel` that is not there: `python -m stormpetrel.simulate.fakes.scancel --feed FOLDER JOBID…` cancels in a feed.

Like scancel, it says nothing and exits 0 where a job is over or not there (`-v` makes it tell), and refuses another's job.
`--user NAME` says which simulated user asks; without it, the user of this machine. Root and the owner of the feed may cancel all.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Final

from stormpetrel.errors import AccessError, StormpetrelError, UsageError
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.simulate.fakes.sacct import SlurmParser
from stormpetrel.simulate.fakes.sbatch import VERSION, this_user
from stormpetrel.simulate.submitting import cancel_job

_JOB: Final = re.compile(r"(\d{1,18})(?:_(\d{1,10}))?", re.ASCII)
_DENIED: Final = 210  # what is left of Slurm's error 2002 in an exit status


def main(arguments: list[str] | None = None) -> int:
    """Answer one call; the exit status of scancel."""
    options = _parser().parse_args(arguments)
    try:
        return _cancel(options)
    except (StormpetrelError, OSError) as error:
        _print_message(f"error: {error.what if isinstance(error, StormpetrelError) else error.strerror}", quiet=False)
        return 1


def _cancel(options: argparse.Namespace) -> int:
    jobs = [(word, name) for word in options.job for name in expand_nodes(word) or [word]]
    for word, name in jobs:
        if not _JOB.fullmatch(name):
            raise UsageError(f"Invalid job id {word}")
    if not jobs:
        raise UsageError("No job identification provided")
    folder = Path(options.feed)
    administrator = not options.user and os.getuid() in (0, folder.stat().st_uid)
    status = 0
    for _, name in jobs:
        _print_message(f"Terminating job {name}", quiet=not options.verbose)
        job_id, _, task = name.partition("_")
        try:
            cancel_job(folder, int(job_id), task=int(task) if task else None, user=options.user or this_user(),
                       administrator=administrator)  # fmt: skip
        except AccessError as error:
            _print_message(f"error: Kill job error on job id {name}: {error.what}", quiet=options.quiet)
            status = _DENIED
        except UsageError as error:
            _print_message(f"error: Kill job error on job id {name}: {error.what}", quiet=not options.verbose)
    return status


def _print_message(sentence: str, *, quiet: bool) -> None:
    if not quiet:
        sys.stderr.write(f"scancel: {sentence}\n")


def _parser() -> argparse.ArgumentParser:
    parser = SlurmParser("scancel", __doc__)
    parser.add_argument("job", nargs="*", help="jobs, as 123, 123_4 or 123_[4-6]")
    parser.add_argument("-u", "--user", "--uid", dest="user", help="who asks (a simulated user)")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say what is done, and what cannot be")
    parser.add_argument("-Q", "--quiet", action="store_true", help="say nothing")
    parser.add_argument("-V", "--version", action="version", version=VERSION)
    return parser


if __name__ == "__main__":
    sys.exit(main())
