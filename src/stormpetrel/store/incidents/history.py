"""The table of incidents: one row each, kept when the state store has let go of them.

Incident + acts -> IncidentRecord -> write -> rows of `incidents`; get, list -> the records again. The state store is where
incidents change; this copy is for SQL and for the years after. A row is replaced as a whole, however often it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

import polars as pl
from pydantic import TypeAdapter, ValidationError

from stormpetrel.errors import StoreError
from stormpetrel.records.incidents import LEADING, ActKind, Incident, IncidentAct, Severity, standing_verdict
from stormpetrel.records.times import UTC_TIME, month_of
from stormpetrel.store.tables import TableSpec, TableStore
from stormpetrel.store.upkeep.scrub import FORGOTTEN, whole_word_of, without_names

_BETWEEN: Final = ", "
SHOWN: Final = {  # what SQL shows; lists are texts, so that LIKE finds what is in them
    "id": pl.Int64(),
    "cluster": pl.String(),
    "severity": pl.String(),
    "state": pl.String(),
    "title": pl.String(),
    "kinds": pl.String(),
    "families": pl.String(),
    "subjects": pl.String(),  # node:n017, user:ann
    "users": pl.String(),
    "since": UTC_TIME,
    "until": UTC_TIME,
    "raised_at": UTC_TIME,
    "resolved_at": UTC_TIME,
    "returns": pl.Int64(),
    "pages": pl.Int64(),
    "paged_at": UTC_TIME,  # the first time
    "late": pl.Boolean(),
    "held_back": pl.String(),
    "blame": pl.String(),
    "verdict": pl.String(),
    "verdict_by": pl.String(),
    "verdict_at": UTC_TIME,
    "acknowledged_by": pl.String(),
    "lost": pl.Int64(),  # jobs, as the title counts them
    "tried": pl.Int64(),
}
INCIDENTS: Final = TableSpec(
    "incidents",
    pl.Schema({**SHOWN, "body": pl.String(), "acts": pl.String(), "month": pl.String()}),
    partition_by=("month",),
    ranges=("id", "since", "until", "raised_at", "resolved_at"),
    distinct=("id", "title", "body", "acts"),
)


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    """An incident as it is written down: what findings say, what people did, and what it is then, with its line."""

    incident: Incident  # as the watch keeps it
    acts: tuple[IncidentAct, ...]
    shown: Incident  # with the acts
    title: str


class IncidentHistory(TableStore):
    """Reads and writes the incidents of a site as a table."""

    spec = INCIDENTS

    def read(self) -> pl.LazyFrame:
        """The incidents as SQL shows them."""
        return self.table.scan().select(list(SHOWN))

    def write(self, records: Sequence[IncidentRecord]) -> None:
        """Put these incidents into the table, in place of what it says of them, in one commit."""
        if not records:
            return
        rows = pl.DataFrame([_row(record) for record in records], schema={**SHOWN, "body": pl.String(), "acts": pl.String()})
        with self._writer_lock():
            self.table.upsert(rows.with_columns(month=month_of(pl.col("raised_at"))), on=("id",), nullable=())

    def get(self, number: int) -> tuple[Incident, tuple[IncidentAct, ...]] | None:
        """Return an incident and what people did to it; None where the table has none of this number."""
        rows = self.table.scan().filter(pl.col("id") == number).select("body", "acts").collect()
        return _read(*rows.row(0)) if rows.height else None

    def list(
        self, *, resolved_after: datetime | None = None, severities: Iterable[Severity] | None = None, up_to: int
    ) -> list[tuple[Incident, tuple[IncidentAct, ...]]]:
        """Return incidents up to a number with what people did to them, the newest first."""
        rows = self.table.scan().filter(pl.col("id") <= up_to)
        if resolved_after is not None:
            rows = rows.filter(pl.col("resolved_at").is_null() | (pl.col("resolved_at") > resolved_after))
        if severities is not None:
            rows = rows.filter(pl.col("severity").is_in([severity.value for severity in severities]))
        newest_first = rows.sort("id", descending=True).select("body", "acts").collect()
        return [_read(*row) for row in newest_first.iter_rows()]

    def last_number(self) -> int:
        """Return the highest number in the table; 0 where it is empty."""
        return int(self.table.scan().select(pl.col("id").max()).collect().item() or 0)

    def forget(self, *names: str) -> int:
        """Take a user out of every row and every file, under each of these names; how many rows named the user."""
        whole_word = whole_word_of(*names)
        changed = 0
        with self._writer_lock():
            for (month,) in self.table.scan().select(pl.col("month").unique().sort()).collect().iter_rows():
                rows = self.table.scan().filter(pl.col("month") == month).collect()
                clean = [_without(row, whole_word) for row in rows.iter_rows(named=True)]
                differ = sum(new != old for new, old in zip(clean, rows.iter_rows(named=True), strict=True))
                if differ:
                    self.table.overwrite(pl.DataFrame(clean, schema=INCIDENTS.schema), where=f"month = '{month}'")
                changed += differ
            self.table.vacuum(keep_hours=0)  # also where nothing changed: a row that was replaced since may have had the name
        return changed


def _row(record: IncidentRecord) -> dict[str, Any]:
    shown = record.shown
    judged = standing_verdict(record.acts)
    return {
        "id": shown.id,
        "cluster": shown.cluster,
        "severity": shown.severity.value,
        "state": shown.state.value,
        "title": record.title,
        "kinds": _BETWEEN.join(kind.value for kind in shown.kinds),
        "families": _BETWEEN.join(shown.families),
        **_people(record.incident, record.acts),
        "since": shown.since,
        "until": shown.until,
        "raised_at": shown.raised_at,
        "resolved_at": shown.resolved_at,
        "returns": len(shown.reopened_at),
        "pages": len(shown.paged_at),
        "paged_at": shown.paged_at[0] if shown.paged_at else None,
        "late": shown.late,
        "held_back": shown.held_back,
        "blame": shown.blame.value,
        "verdict": shown.verdict.value if shown.verdict else None,
        "verdict_at": judged.at if judged else None,
        **_jobs(shown),
        "body": incident_body().dump_json(record.incident).decode(),
        "acts": _acts().dump_json(record.acts).decode(),
    }


def _jobs(incident: Incident) -> dict[str, int]:
    """How many jobs were lost, and of how many, as one watcher counts them: two that see the same must not be added up."""
    kind = min(incident.kinds, key=LEADING.index)
    leading = [finding for finding in incident.findings if finding.kind == kind]
    counted = [finding for finding in leading if finding.family == leading[0].family]
    return {name: round(sum(finding.figure(name) for finding in counted)) for name in ("lost", "tried")}


def _people(incident: Incident, acts: Sequence[IncidentAct]) -> dict[str, str | None]:
    """The columns in which people can be named."""
    judged = standing_verdict(acts)
    noticed = [act.user for act in acts if act.kind != ActKind.NOTE]
    return {
        "subjects": _BETWEEN.join(f"{subject.kind.value}:{subject.name}" for subject in incident.subjects),
        "users": _BETWEEN.join(sorted(incident.users)),
        "verdict_by": judged.user if judged else None,
        "acknowledged_by": noticed[0] if noticed else None,
    }


def _without(row: dict[str, Any], whole_word: re.Pattern[str]) -> dict[str, Any]:
    """A row that names somebody no more; others stay as they are."""
    body, acts = json.loads(row["body"]), json.loads(row["acts"])
    clean_body = without_names(body, whole_word)
    clean_acts = [
        {**act, "user": whole_word.sub(FORGOTTEN, act["user"]), "note": whole_word.sub(FORGOTTEN, act["note"])} for act in acts
    ]
    if (clean_body, clean_acts) == (body, acts):
        return row
    texts = {"body": json.dumps(clean_body), "acts": json.dumps(clean_acts)}
    people = _people(*_read(texts["body"], texts["acts"]))
    return {**row, **texts, **people, "title": whole_word.sub(FORGOTTEN, row["title"])}


def _read(body: str, acts: str) -> tuple[Incident, tuple[IncidentAct, ...]]:
    try:
        return incident_body().validate_json(body), _acts().validate_json(acts)
    except ValidationError as error:
        raise StoreError(
            f"An incident in the table `incidents` cannot be read: {error.errors()[0]['msg']}.",
            hint="It may be of a newer version: pip install --upgrade stormpetrel",
        ) from error


@cache
def incident_body() -> TypeAdapter[Incident]:
    """What an incident is as JSON; worked out at first use: every command imports this module, and few read an incident."""
    return TypeAdapter(Incident)


@cache
def _acts() -> TypeAdapter[tuple[IncidentAct, ...]]:
    return TypeAdapter(tuple[IncidentAct, ...])
