"""Records of LSF in a file -> jobs: which of LSF's forms the file is in, told from its lines.

lsb.acct -> AccountingRecords; bacct -l, bhist -l, bjobs -l -> LongRecords; reports of ended jobs -> JobReports.
Whatever the form, a record is one row, or is refused, or adds to a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.contract import Chunk, FileSource
from stormpetrel.sources.job_rows import JobBatch
from stormpetrel.sources.lines import Block, Refused, sound_lines
from stormpetrel.sources.lsf import accounting
from stormpetrel.sources.lsf.job_reports import REPORT_COLUMNS, SUBJECT, JobReports
from stormpetrel.sources.lsf.long_records import BACCT_COLUMNS, HEADER, LONG_COLUMNS, LongRecords
from stormpetrel.sources.lsf.stamps import Stamps

_HEAD_LINES: Final = 2000


class Records(Protocol):
    """Makes jobs out of the lines of one form, and puts them into a batch."""

    def take(self, number: int, line: str) -> None:
        """One line of the file."""

    def spoil(self, refused: Refused) -> None:
        """A line that cannot be read, in its place among the others."""

    def finish(self) -> None:
        """The end of the file."""


@dataclass(frozen=True, slots=True)
class Form:
    """One of the forms of LSF's records: how its lines are known, what it fills, and what reads it."""

    is_line: Callable[[str], bool]
    columns: frozenset[str]
    reader: Callable[[LsfLog, JobBatch], Records]


class LsfLog(FileSource):
    """A file with records of LSF: lsb.acct, what bacct -l, bhist -l or bjobs -l print, or job reports."""

    format = "lsf"

    def __init__(
        self,
        path: Path | str,
        *,
        time_zone: str = "UTC",
        cluster: str = "",
        year: int | None = None,
        block_bytes: int | None = None,
    ) -> None:
        super().__init__(path, block_bytes)
        self.zone, self.cluster, self.year = ZoneInfo(time_zone), cluster, year
        self._columns = accounting.COLUMNS
        self.stamps = Stamps(self.zone, self.as_of, year)

    def fields(self) -> frozenset[str]:
        """The job columns that the file's form can fill; of the most complete form until the first lines have been read."""
        return self._columns

    def chunks(self) -> Iterator[Chunk]:
        """The jobs of the file, in the order in which they stand in it."""
        batch, bytes_done = JobBatch(), 0
        records: Records | None = None
        for block in self._file.blocks():
            for number, line in _numbered(block):
                if records is None:
                    records = self._records(block, batch)
                if isinstance(line, str):
                    records.take(number, line)
                else:
                    records.spoil(line)
                if batch.is_full:
                    yield batch.chunk(bytes_done)
            bytes_done = block.bytes_done
        if records is not None:
            records.finish()
        if isinstance(records, JobReports) and not records.reports:
            raise self._unknown()
        if self.stamps.without_year and self.year is None:
            self.notes.append(
                f"The times of {self.name} have no year; taken is the latest in which date and day of the week agree "
                "(another: --year)."
            )
        yield batch.chunk(bytes_done)

    def _records(self, block: Block, batch: JobBatch) -> Records:
        lines = [line.decode() for _, line in sound_lines(block)[0][:_HEAD_LINES]]
        if any(accounting.is_events_file(line) for line in lines):
            raise SourceFormatError(
                f"{self.name} is lsb.events, the log of LSF's master; it is not read.",
                hint="Name lsb.acct in the same folder, or write what bhist -l prints into a file.",
            )
        # A report stands at the end of a job's output, which may be long: what looks like nothing may be one.
        form = next((form for form in FORMS if any(form.is_line(line) for line in lines)), REPORTS)
        self._columns = form.columns
        return form.reader(self, batch)

    def _unknown(self) -> SourceFormatError:
        return SourceFormatError(
            f"{self.name} holds no records of LSF: neither of lsb.acct, nor of bacct -l or bhist -l, nor a job report.",
            hint="Name LSB_SHAREDIR/CLUSTER/logdir/lsb.acct, or write what bacct -l prints into a file.",
        )


def _numbered(block: Block) -> Iterator[tuple[int, str | Refused]]:
    """The lines of a block with their numbers, and in their places those that cannot be read."""
    lines, refused = sound_lines(block)
    spoilt = [*block.refused, *refused]
    if not spoilt:
        for number, line in lines:
            yield number, line.decode()
        return
    both: list[tuple[int, str | Refused]] = [(number, line.decode()) for number, line in lines]
    both += [(entry[0], entry) for entry in spoilt]
    yield from sorted(both, key=lambda pair: pair[0])


def _is_bacct(line: str) -> bool:
    return line.lstrip().startswith("Accounting information about ")


def _long_records(log: LsfLog, batch: JobBatch) -> Records:
    return LongRecords(batch, log.cluster, log.stamps)


REPORTS: Final = Form(
    lambda line: SUBJECT.match(line) is not None,
    REPORT_COLUMNS,
    lambda log, batch: JobReports(batch, log.cluster, log.stamps),
)
FORMS: Final = (
    Form(
        lambda line: line.startswith(accounting.FINISH),
        accounting.COLUMNS,
        lambda log, batch: accounting.AccountingRecords(batch, log.cluster),
    ),
    REPORTS,
    Form(_is_bacct, BACCT_COLUMNS, _long_records),
    Form(lambda line: HEADER.match(line) is not None, LONG_COLUMNS, _long_records),
)
