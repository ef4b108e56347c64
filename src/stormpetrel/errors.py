"""Every error Stormpetrel raises on purpose: what happened, where, and what to do next.

::

    StormpetrelError
    ├── SettingsError            site.toml is missing, unreadable or wrong
    ├── UsageError               a command or function was used wrongly
    │   └── NotThereError        a job, a model or a page that does not exist, or is not yours
    ├── AccessError              the viewer may not do this
    ├── MissingExtraError        a feature needs an extra that is not installed
    ├── SourceError              a source cannot be used
    │   ├── SourceFormatError    the input is not in the given or detected format
    │   └── SourceUnavailableError   the source did not answer; a retry can help
    │       └── NoSamplesError       it answered, but has no samples of the counters
    ├── ModelError               a model cannot be trained, read or used
    │   ├── NotEnoughJobsError   too few jobs, or only one outcome, to learn from
    │   ├── LeakError            a feature would use what is known only later
    │   ├── ModelFormatError     a model folder is damaged, or for other columns
    │   │   ├── ModelOutdatedError   saved by an earlier version in a format that is no longer read
    │   │   └── ModelVersionError    saved by a newer Stormpetrel
    │   └── ModelBusyError       the history of the jobs is still being read; a retry can help
    ├── EngineError              a worker process died, or its result could not be sent
    └── StoreError               the site's data cannot be read or written
        ├── StoreVersionError    written by a newer Stormpetrel
        ├── StateLostError       the tables are there, the state that belongs to them is not
        ├── StoreBusyError       another process holds the site; a retry can help
        ├── StateAwayError       the server of the state store does not answer; a retry can help
        ├── StoreNotWritableError    a folder that cannot be written, no permission
        │   ├── DiskFullError        the disk is full, or the quota is used up
        │   └── ReadOnlySiteError    the whole site can be read but not written
        └── NetworkFilesystemError   SQLite on NFS, Lustre or GPFS
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

# A plain `pip install` of torch fetches its CUDA build: whoever lacks an extra that needs it is told before, and how not to.
_BEFORE_TORCH: Final = (
    "pip install torch --index-url https://download.pytorch.org/whl/cpu (torch for the CPU, 0.9 GB on disk; "
    "without this step it comes with CUDA, about 5 GB), then: "
)
_BEFORE: Final = {"traces": _BEFORE_TORCH, "sdv": _BEFORE_TORCH}


class StormpetrelError(Exception):
    """The root of the tree; `hint` says what to do next."""

    retry_helps: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        self.what = what
        self.hint = hint
        super().__init__(f"{what} {hint}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        """For the way between two of our processes: subclasses take other arguments."""
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(kind: type[StormpetrelError], args: tuple[object, ...], attributes: dict[str, Any]) -> StormpetrelError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class SettingsError(StormpetrelError):
    """site.toml is missing, unreadable or wrong."""


class UsageError(StormpetrelError):
    """A command or function was used wrongly."""

    exit_code = 2


class NotThereError(UsageError):
    """A job, a model or a page that does not exist, or that the viewer may not see: the two are not distinguished."""


class AccessError(StormpetrelError):
    """The viewer may not do this."""


class MissingExtraError(StormpetrelError):
    """A feature needs an extra that is not installed; the hint says how to get it, and how large it is where it is large."""

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{feature} needs the extra '{extra}', which is not installed.",
            hint=f"Run: {_BEFORE.get(extra, '')}pip install 'stormpetrel[{extra}]'",
        )


class SourceError(StormpetrelError):
    """A source cannot be used."""


class SourceFormatError(SourceError):
    """The input is not in the given or detected format."""


class SourceUnavailableError(SourceError):
    """The source did not answer; a retry can help."""

    retry_helps = True


class NoSamplesError(SourceUnavailableError):
    """The source answered, but has no samples of the counters; there may be some later."""


class ModelError(StormpetrelError):
    """A model cannot be trained, read or used."""


class NotEnoughJobsError(ModelError):
    """There are too few jobs, or only one outcome, to learn from."""


class LeakError(ModelError):
    """A feature would use what is known only later."""


class ModelFormatError(ModelError):
    """A model folder is damaged, or for other columns."""


class ModelOutdatedError(ModelFormatError):
    """A model was saved by an earlier version in a format that is no longer read; it is trained again automatically."""


class ModelVersionError(ModelFormatError):
    """A model was saved by a newer Stormpetrel."""


class ModelBusyError(ModelError):
    """The history of the jobs is still being read; a retry can help."""

    retry_helps = True


class EngineError(StormpetrelError):
    """A worker process died, or its result could not be sent."""


class StoreError(StormpetrelError):
    """The site's data cannot be read or written."""


class StoreVersionError(StoreError):
    """Written by a newer Stormpetrel."""


class StateLostError(StoreError):
    """The tables are there, the state that belongs to them is not."""


class StoreBusyError(StoreError):
    """Another process holds the site; a retry can help."""

    retry_helps = True


class StateAwayError(StoreError):
    """The server of the state store does not answer; a retry can help."""

    retry_helps = True


class StoreNotWritableError(StoreError):
    """A folder that cannot be written, or no permission."""


class DiskFullError(StoreNotWritableError):
    """The disk is full, or the quota is used up."""


class ReadOnlySiteError(StoreNotWritableError):
    """The whole site can be read but not written: a read-only mount, or another user's folder."""


class NetworkFilesystemError(StoreError):
    """SQLite on a network file system."""
