"""Privacy: pseudonyms for users, and users that are not to be taken in again.

Both are keyed digests: the key lies in the site's folder (mode 0600) and in its backups, nowhere else.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

import polars as pl

from stormpetrel.records.unread import UnreadCounts

_WORDS = re.compile(r"\w+")
_NAMES = re.compile(r"[^\s|,;=]+")  # what a login name can be made of, as `DOM\\kim`, `kim.lee@lab` or `kim"lee`
_HIDDEN = "(names a forgotten user)"
_TEXT_COLUMNS = ("job_name", "work_dir", "script_path", "submit_line")


def _possible_names(text: str) -> set[str]:
    """Every part of a text that could be somebody's name."""
    names = {name.strip("\"'()[]{}<>:") for name in _NAMES.findall(text)}
    return names | set(_WORDS.findall(text)) | {name.partition("@")[0] for name in names}


@dataclass(frozen=True, slots=True)
class Privacy:
    """What is done to user names on their way into the store."""

    key: bytes
    pseudonymise: bool
    forgotten: frozenset[str]

    def digest(self, user: str) -> str:
        """What is remembered of a user who is to be forgotten."""
        return hmac.new(self.key, b"forgotten:" + user.encode(), hashlib.sha256).hexdigest()

    def pseudonym(self, user: str) -> str:
        """What stands for a user in the tables: the same for the same user, and of no use without the key."""
        return "u" + hmac.new(self.key, b"pseudonym:" + user.encode(), hashlib.sha256).hexdigest()[:12]

    def without_forgotten(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """The rows of users that may be kept."""
        if not self.forgotten:
            return jobs
        names = jobs["user"].unique().drop_nulls()
        gone = [name for name in names if self.digest(name) in self.forgotten]
        return jobs.filter(~pl.col("user").is_in(gone).fill_null(False)) if gone else jobs

    def pseudonymised(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """The rows with pseudonyms for users, also where paths and command lines name them; user ids and extras are dropped.

        Extra fields are free text of the site (comments, node and task lists): what they say of a person cannot be known.
        """
        if not self.pseudonymise:
            return jobs
        names = jobs["user"].unique().drop_nulls()
        stands_for = pl.Series([self.pseudonym(name) for name in names], dtype=pl.String)
        texts = [self._scrubbed(jobs, column) for column in _TEXT_COLUMNS]
        return jobs.with_columns(
            pl.col("user").replace_strict(names, stands_for, default=None, return_dtype=pl.String),
            pl.lit(None, dtype=pl.Int64).alias("uid"),
            pl.lit(None, dtype=pl.String).alias("cancelled_by"),
            pl.col("state_raw").str.replace(r" by \S+$", ""),
            pl.lit(None, dtype=jobs.schema["extra"]).alias("extra"),
            *(self._personal(jobs, name) for name in ("group", "account")),
            *texts,
        )

    def without_names(self, rejects: pl.DataFrame) -> pl.DataFrame:
        """Refused records without their text, where that names a forgotten user."""
        if not self.forgotten or not rejects.height:
            return rejects
        named = [self._names_forgotten(f"{raw} {reason}") for raw, reason in rejects.select("raw", "reason").iter_rows()]
        hidden = pl.when(pl.Series(named)).then(pl.lit(_HIDDEN))
        return rejects.with_columns(hidden.otherwise(name).alias(name) for name in ("raw", "reason"))

    def without_names_in(self, unread: UnreadCounts) -> UnreadCounts:
        """The counts of what could not be read, their examples without texts that name a forgotten user."""
        if not self.forgotten:
            return unread
        examples = {
            column: [_HIDDEN if self._names_forgotten(text) else text for text in texts]
            for column, texts in unread.examples.items()
        }
        return UnreadCounts(unread.counts, unread.filled, examples)

    def _names_forgotten(self, text: str) -> bool:
        return any(self.digest(name) in self.forgotten for name in _possible_names(text))

    def _personal(self, jobs: pl.DataFrame, column: str) -> pl.Series:
        """Groups and accounts that carry the name of their user, as many sites have them, become the pseudonym as well."""
        own = jobs.filter(pl.col(column) == pl.col("user"))["user"].unique()
        stands_for = [self.pseudonym(name) for name in own]
        return jobs[column].replace(own, pl.Series(stands_for, dtype=pl.String)) if len(own) else jobs[column]

    def _scrubbed(self, jobs: pl.DataFrame, column: str) -> pl.Series:
        pairs = jobs.select("user", column)
        if pairs[column].null_count() == pairs.height:
            return pairs[column]
        distinct = pairs.unique()
        cleaned = [text.replace(user, self.pseudonym(user)) if text and user else text for user, text in distinct.iter_rows()]
        table = distinct.with_columns(pl.Series("_clean", cleaned, dtype=pl.String))
        joined = pairs.join(table, on=["user", column], how="left", nulls_equal=True, maintain_order="left")
        return joined["_clean"].rename(column)
