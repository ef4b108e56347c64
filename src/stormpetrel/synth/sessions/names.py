"""New names for users, groups and accounts; which are there, in words.

The names of a log are never learnt: a user is a number by how many jobs he has, and a new log calls them user0001, group01, …
(newuser0001 where the log itself has such names: a new name is never an old one).
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.synth.sessions.learning import Learnt
from stormpetrel.synth.sessions.plan import Chunk

_GROUP, _ACCOUNT = 1, 2
_COLUMN: Final = {_GROUP: "group", _ACCOUNT: "account"}
_MOST_GROUPS: Final = 50
_FEWEST_MEMBERS: Final = 3  # a smaller group would be a person


def attach_names(made: pl.DataFrame, learnt: Learnt, chunk: Chunk, users: int, rng: np.random.Generator) -> pl.DataFrame:
    """The frame with `user`, `group` and `account` where the log had them; a session is charged to one account."""
    columns: list[pl.Series] = []
    who = made["_who"].to_numpy()
    if "user" in learnt.coding.columns:
        columns.append(_names(learnt, "user", who, 4).set(pl.Series(who % users == learnt.nameless), None))
    entries = _entries(learnt, chunk.user % users, rng)[made["_session"].to_numpy()]
    for place, name in _COLUMN.items():
        if name in learnt.coding.columns:
            numbers = learnt.pairs[entries, place]
            columns.append(_names(learnt, name, numbers, 2).set(pl.Series(numbers < 0), None))
    return made.with_columns(columns)


def _names(learnt: Learnt, column: str, numbers: Any, digits: int) -> pl.Series:
    counted = pl.Series(numbers + 1, dtype=pl.Int64).cast(pl.String).str.zfill(digits)
    return (learnt.coding.prefixes[column] + counted).alias(column)


def charged_to(learnt: Learnt, group: str) -> Learnt:
    """The same, with nothing charged to other groups than this one of `describe_groups`."""
    place = _column_of_groups(learnt)
    number = int(group.removeprefix(learnt.coding.prefixes[_COLUMN[place]])) - 1
    theirs = learnt.pairs[:, place] == number
    return replace(learnt, pairs=learnt.pairs[theirs], pair_weight=learnt.pair_weight[theirs])


def _entries(learnt: Learnt, user: Any, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """(sessions,) an entry of the table of accounts for each session, by the user's shares."""
    owners = learnt.pairs[:, 0]
    known = np.isin(user, owners)
    owner = np.where(known, user, -1)  # small users share one table
    first = np.searchsorted(owners, owner, "left")
    last = np.searchsorted(owners, owner, "right") - 1
    whole = np.cumsum(learnt.pair_weight)
    base = np.concatenate([[0.0], whole])[first]
    drawn = np.searchsorted(whole, base + rng.random(len(user)) * (whole[last] - base), "right")
    return np.asarray(np.clip(drawn, first, last), dtype=np.int64)


def _column_of_groups(learnt: Learnt) -> int:
    return _GROUP if "group" in learnt.coding.columns else _ACCOUNT


def _members(learnt: Learnt) -> dict[str, npt.NDArray[np.int64]]:
    """Group -> users whose jobs are mostly in it, of those users that are known one by one."""
    column = _column_of_groups(learnt)
    if not {"group", "account"} & set(learnt.coding.columns):
        return {}
    rows = pl.DataFrame({"user": learnt.pairs[:, 0], "group": learnt.pairs[:, column], "share": learnt.pair_weight})
    known = rows.filter((pl.col("user") >= 0) & (pl.col("group") >= 0))
    shares = known.group_by("user", "group", maintain_order=True).agg(pl.col("share").sum())
    main = shares.sort("share", descending=True, maintain_order=True).unique("user", keep="first", maintain_order=True)
    return {
        f"{learnt.coding.prefixes[_COLUMN[column]]}{int(group[0]) + 1:02d}": part["user"].to_numpy()
        for group, part in main.sort("group").group_by("group", maintain_order=True)
        if part.height >= _FEWEST_MEMBERS
    }


def describe_groups(learnt: Learnt) -> dict[str, str]:
    """Groups by their new names, the largest first."""
    members = _members(learnt)
    jobs = {name: int(learnt.jobs_of[users].sum()) for name, users in members.items()}
    largest = sorted(members, key=lambda name: -jobs[name])[:_MOST_GROUPS]
    return {name: f"{len(members[name]):,} users, {jobs[name]:,} jobs" for name in largest}


def named_group(learnt: Learnt, name: str) -> npt.NDArray[np.float64]:
    """(users,) 1 for the members of a group."""
    members = _members(learnt)
    if name not in members:
        close = difflib.get_close_matches(name, members, n=1)
        known = ", ".join(list(describe_groups(learnt))[:8]) or f"none has {_FEWEST_MEMBERS} users who can be told apart"
        raise UsageError(
            f"There is no group '{name[:60]}'.", hint=f"{f'Did you mean {close[0]!r}? ' if close else ''}Known: {known}."
        )
    chosen = np.zeros(learnt.users)
    chosen[members[name]] = 1.0
    return chosen
