"""The fields of one record of Slurm's JSON, in whatever shape the version at hand writes them.

object of JSON -> JsonFields -> number, time, list of nodes, exit; a value that cannot be read is null, and noted as unread.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from stormpetrel.records.nodes import is_list_of_nodes
from stormpetrel.sources.job_rows import FieldReader, text
from stormpetrel.sources.json_records import Record

_NO_VALUE: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})


class JsonFields(FieldReader):
    """Reads the fields of one of Slurm's JSON records."""

    def number(self, column: str, value: object) -> int | None:
        """An integer, plain or wrapped; None where it is not set."""
        try:
            return number_of(value)
        except ValueError:
            self.note(column, value)
            return None

    def time(self, column: str, value: object) -> datetime | None:
        """Unix seconds as a time; 0 is none."""
        seconds = self.number(column, value)
        moment = moment_of(seconds)
        if seconds and moment is None:
            self.note(column, value)
        return moment

    def part(self, column: str, value: object) -> Record:
        """An object inside the record; empty where it is missing or no object."""
        if value and not isinstance(value, dict):
            self.note(column, value)
        return object_of(value)

    def nodes(self, value: object) -> str | None:
        """The list of nodes, where it is one."""
        names = text_of(value)
        if names and not is_list_of_nodes(names):
            self.note("node_list", names)
            return None
        return names

    def exit(self, column: str, value: object) -> tuple[int | None, int | None]:
        """Exit code and signal."""
        try:
            return _exit(value)
        except (ValueError, AttributeError):
            self.note(column, value)
            return None, None

    def list_of(self, column: str, values: object) -> list[Record]:
        """The objects of a list inside the record; what is no list, or no object in it, is noted."""
        found = [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
        if values and not (isinstance(values, list) and len(found) == len(values)):
            self.note(column, values)
        return found


def object_of(value: object) -> Record:
    """An object of JSON; empty where it is something else."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str | None:
    """A value as text; None where there is none."""
    return None if value is None or value == "None assigned" else text(str(value))


def number_of(value: object) -> int | None:
    """An integer, plain or wrapped; None where it is not set, infinite, or one of Slurm's marks for "no value"."""
    if isinstance(value, dict):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a number")
    if value in _NO_VALUE:
        return None
    if not -(2**63) <= value < 2**63:
        raise ValueError("a number is out of range")
    return value


def moment_of(seconds: int | None) -> datetime | None:
    """Unix seconds as a time; None of 0, and of what no clock shows."""
    return datetime.fromtimestamp(seconds, UTC) if seconds and 0 < seconds < 4_291_747_200 else None


def _exit(value: object) -> tuple[int | None, int | None]:
    """Exit code and signal, out of the object of slurmdb or the wait status of squeue before v0.0.40.

    A plain return_code (before v0.0.40) is 0 whatever the job exited with: nothing is better than that.
    """
    if isinstance(value, dict) and "return_code" in value:
        told = value.get("signal") or {}
        signal = number_of(told.get("id", told.get("signal_id")))
        if not isinstance(value["return_code"], dict):
            return None, None
        code = number_of(value["return_code"])
        return (0 if code is None and signal else code), signal or 0
    status = number_of(value)
    return (None, None) if status is None else ((status >> 8) & 0xFF, status & 0x7F)
