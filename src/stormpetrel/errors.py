"""Every error Stormpetrel raises on purpose: what happened, where, and what to do next.

::

    StormpetrelError
    ├── SettingsError            site.toml is missing, unreadable or wrong
    ├── UsageError               something was requested in a way that makes no sense
    │   └── NotThereError        a job, a model or a page that does not exist, or is not yours
    ├── AccessError              the viewer may not do this
    ├── MissingExtraError        a feature needs an extra that is not installed
    ├── SourceError              the outside world gave us something we cannot use
    │   ├── SourceFormatError    the input is not in the format that was named
    │   └── SourceUnavailableError   the source did not answer; a retry can help
    │       └── NoSamplesError       it answered, and has nothing of what is read
    ├── ModelError               a model cannot be made, read or used
    │   ├── NotEnoughJobsError   too few jobs, or only one outcome, to learn from
    │   ├── LeakError            a feature would see what is known only later
    │   ├── ModelFormatError     a model folder is damaged, or for other columns
    │   │   ├── ModelOutdatedError   saved by an earlier version in a format that is not read any more
    │   │   └── ModelVersionError    saved by a newer Stormpetrel
    │   └── ModelBusyError       the history of the jobs is still being read; a retry can help
    ├── EngineError              a process that computed for us died, or what it found could not be sent
    └── StoreError               the site's memory cannot be read or written
        ├── StoreVersionError    written by a newer Stormpetrel
        ├── StateLostError       the tables are there, the state that belongs to them is not
        ├── StoreBusyError       another process holds the site; a retry can help
        ├── StateAwayError       the server of the state store does not answer; a retry can help
        ├── StoreNotWritableError    a folder that cannot be written, no permission
        │   ├── DiskFullError        the disk is full, or the quota is used up
        │   └── ReadOnlySiteError    the whole site can be read and not be written
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
    """Something was requested in a way that makes no sense."""

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
    """The outside world gave us something we cannot use."""


class SourceFormatError(SourceError):
    """The input is not in the format that was named."""


class SourceUnavailableError(SourceError):
    """The source did not answer; a retry can help."""

    retry_helps = True


class NoSamplesError(SourceUnavailableError):
    """The source answered, and has nothing of what is read; there may be something later."""


class ModelError(StormpetrelError):
    """A model cannot be made, read or used."""


class NotEnoughJobsError(ModelError):
    """There are too few jobs, or only one outcome, to learn from."""


class LeakError(ModelError):
    """A feature would see what is known only later."""


class ModelFormatError(ModelError):
    """A model folder is damaged, or for other columns."""


class ModelOutdatedError(ModelFormatError):
    """A model was saved by an earlier version in a format that is not read any more; it is trained again by itself."""


class ModelVersionError(ModelFormatError):
    """A model was saved by a newer Stormpetrel."""


class ModelBusyError(ModelError):
    """The history of the jobs is still being read; a retry can help."""

    retry_helps = True


class EngineError(StormpetrelError):
    """A process that computed for us died, or what it found could not be sent."""


class StoreError(StormpetrelError):
    """The site's memory cannot be read or written."""


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
    """The whole site can be read and not be written: a read-only mount, or somebody else's folder."""


class NetworkFilesystemError(StoreError):
    """SQLite on a network file system."""
