"""Taking a user out of the state store: what was theirs is deleted, and what others wrote loses the name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote_plus

import sqlalchemy as sa

from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import (
    actions,
    audit,
    case_answers,
    digests,
    incident_acts,
    incidents,
    ingests,
    mails,
    messages,
    mutes,
    opinions,
    outages,
    tokens,
    views,
    watchers,
)

FORGOTTEN: Final = "[forgotten]"
_NAMES: Final = frozenset({"name", "part", "users"})  # keys of incidents and watchers under which people are named
_FIGURES: Final = frozenset({"evidence", "reasons"})  # their names are those of figures


def scrub(state: StateStore, *names: str) -> None:
    """Remove a user under every name given: tokens, opinions and views go, reports and the audit trail lose the name."""
    whole_word = whole_word_of(*names)
    with state.transaction() as connection:
        for table in (tokens, opinions, views, actions, mails, digests):
            connection.execute(sa.delete(table).where(table.c.user.in_(names)))
        _scrub_ingests(connection, whole_word)
        _scrub_views(connection, whole_word)
        _scrub_token_names(connection, whole_word)
        _scrub_titles(connection, whole_word)
        _scrub_texts(connection, whole_word, opinions, ("job", "advice"))
        _scrub_texts(connection, whole_word, audit, ("user", "action", "about"))
        _scrub_texts(connection, whole_word, incident_acts, ("user", "note"))
        _scrub_texts(connection, whole_word, case_answers, ("user", "note"))
        _scrub_texts(connection, whole_word, mutes, ("name", "user", "reason"))
        _scrub_texts(connection, whole_word, messages, ("problem",))
        _scrub_actions(connection, names)
        _scrub_mails(connection, whole_word)
        for table in (incidents, watchers):
            _scrub_bodies(connection, whole_word, table)
    state.empty_log()


def whole_word_of(*names: str) -> re.Pattern[str]:
    """What finds any of these names where it stands as a word of its own, in plain text and in JSON."""
    forms = {form for name in names for form in (name, json.dumps(name, ensure_ascii=False)[1:-1], json.dumps(name)[1:-1])}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile(rf"(?<!\w)({'|'.join(map(re.escape, longest_first))})(?!\w)")


def _scrub_ingests(connection: sa.Connection, whole_word: re.Pattern[str]) -> None:
    """The examples of an ingest report may quote the name."""
    for row in connection.execute(sa.select(ingests)).all():
        report = json.loads(row.report)
        if whole_word.search(row.source) or whole_word.search(str(report)):
            report["examples"], report["unread_examples"], report["notes"] = {}, {}, []
            source = whole_word.sub(FORGOTTEN, row.source)
            connection.execute(sa.update(ingests).where(ingests.c.id == row.id).values(report=json.dumps(report), source=source))


def _scrub_views(connection: sa.Connection, whole_word: re.Pattern[str]) -> None:
    """Other people's views of this user's jobs would be empty: they go as well."""
    for row in connection.execute(sa.select(views)).all():
        if whole_word.search(f"{row.name} {unquote_plus(row.link)}"):
            connection.execute(sa.delete(views).where(views.c.user == row.user, views.c.name == row.name))


def _scrub_token_names(connection: sa.Connection, whole_word: re.Pattern[str]) -> None:
    """Somebody else's token goes on working, under a name that names nobody."""
    for row in connection.execute(sa.select(tokens)).all():
        if whole_word.search(row.name):
            renamed = f"{whole_word.sub(FORGOTTEN, row.name)[:100]} {row.digest[:8]}"
            connection.execute(sa.update(tokens).where(tokens.c.digest == row.digest).values(name=renamed))


def _scrub_mails(connection: sa.Connection, whole_word: re.Pattern[str]) -> None:
    """Mail that names the user goes, whoever it was for: Slurm does not always say whose job it is about."""
    for row in connection.execute(sa.select(mails.c.key, mails.c.recipient, mails.c.body, mails.c.problem)).all():
        if whole_word.search(f"{row.recipient} {row.body} {row.problem}"):
            connection.execute(sa.delete(mails).where(mails.c.key == row.key))


def _scrub_titles(connection: sa.Connection, whole_word: re.Pattern[str]) -> None:
    """An outage stays; whoever its title names is forgotten."""
    for row in connection.execute(sa.select(outages)).all():
        if whole_word.search(row.title):
            same = (outages.c.source == row.source, outages.c.uid == row.uid)
            connection.execute(sa.update(outages).where(*same).values(title=whole_word.sub(FORGOTTEN, row.title)))


def _scrub_texts(connection: sa.Connection, whole_word: re.Pattern[str], table: sa.Table, columns: Sequence[str]) -> None:
    for row in connection.execute(sa.select(table)).all():
        texts = {column: getattr(row, column) for column in columns}
        clean = {column: whole_word.sub(FORGOTTEN, text) for column, text in texts.items()}
        if clean != texts:
            connection.execute(sa.update(table).where(*_is(table, row)).values(clean))


def _scrub_bodies(connection: sa.Connection, whole_word: re.Pattern[str], table: sa.Table) -> None:
    """An incident stays; whoever it names is forgotten."""
    for row in connection.execute(sa.select(table)).all():
        body = json.loads(row.body or "null")
        clean = without_names(body, whole_word)
        if clean != body:
            again = {"recorded": None} if table is incidents else {}
            connection.execute(sa.update(table).where(*_is(table, row)).values(body=json.dumps(clean), **again))


def _scrub_actions(connection: sa.Connection, names: Sequence[str]) -> None:
    """What a forgotten user did to the jobs of others stays, without the name."""
    for row in connection.execute(sa.select(actions)).all():
        body = json.loads(row.body)
        if body["by"] in names:
            text = json.dumps({**body, "by": FORGOTTEN}, ensure_ascii=False)
            connection.execute(sa.update(actions).where(*_is(actions, row)).values(body=text))


def without_names(value: Any, whole_word: re.Pattern[str], *, is_name: bool = False) -> Any:
    """The parsed JSON of an incident, or of what a watcher left, without the names that are found."""
    if isinstance(value, dict):
        return {
            key: part if key in _FIGURES else without_names(part, whole_word, is_name=key in _NAMES)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [without_names(part, whole_word, is_name=is_name) for part in value]
    return whole_word.sub(FORGOTTEN, value) if is_name and isinstance(value, str) else value


def _is(table: sa.Table, row: Any) -> list[sa.ColumnElement[bool]]:
    return [column == getattr(row, column.name) for column in table.primary_key.columns]
