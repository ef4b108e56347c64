"""Whatever order records come in, the table is the same."""

import itertools
import os
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import make_site, table_of

FIELD_SETS = (
    ("JobID", "Submit", "State", "User", "AllocCPUS"),
    ("JobID", "Submit", "State", "User", "JobName"),
    ("JobID", "Submit", "State", "MaxRSS", "AllocCPUS", "WCKey"),
)
VALUES = {
    "JobID": st.sampled_from(["1", "2", "3_1"]),
    "Submit": st.just("2024-03-04T08:00:00"),
    "State": st.sampled_from(["RUNNING", "COMPLETED", "FAILED"]),
    "User": st.sampled_from(["ada", "bo", ""]),
    "AllocCPUS": st.sampled_from(["1", "2"]),
    "JobName": st.sampled_from(["fit", ""]),
    "MaxRSS": st.sampled_from(["1K", "2K", ""]),
    "WCKey": st.sampled_from(["blue", ""]),
}


@st.composite
def log_files(draw):
    """Files of different fields and times that tell of the same few jobs."""
    files = []
    for _ in range(draw(st.integers(2, 4))):
        names = draw(st.sampled_from(FIELD_SETS))
        rows = draw(st.lists(st.tuples(*(VALUES[name] for name in names)), min_size=1, max_size=4))
        second = draw(st.integers(0, 3))
        files.append(("\n".join("|".join(row) for row in (names, *rows)) + "\n", second))
    return files


def bookkeeping(site):
    """Everything that is stored of a row, bookkeeping too."""
    stored = site.jobs.table.scan().collect()
    older = pl.col("older").list.eval(pl.element().struct.json_encode()).list.sort().list.join(";")
    return stored.with_columns(older).sort("job_id", "array_task").drop("extra")


def build(folder, files, key):
    # The same key for both sites: the fingerprints, and with them the bookkeeping, can be compared.
    with patch("stormpetrel.store.site.secrets.token_hex", return_value=key), make_site(folder) as site:
        for path in files:
            ingest_jobs(site, SacctText(path))
        return table_of(site), bookkeeping(site)


def any_order(examples):
    """A test of so many sets of files; each one makes two sites and reads every file twice or more."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

    def decorated(test):
        return settings(max_examples=examples, deadline=None, suppress_health_check=checks)(
            given(files=log_files(), data=st.data())(test)
        )

    return decorated


@any_order(5)
def test_files_in_any_order_and_any_number_of_times_give_the_same_table(tmp_path_factory, files, data):
    same_table_in_any_order(tmp_path_factory.mktemp("order"), files, data)


@pytest.mark.slow
@any_order(60)
def test_many_more_files_in_any_order_give_the_same_table(tmp_path_factory, files, data):
    same_table_in_any_order(tmp_path_factory.mktemp("order"), files, data)


def same_table_in_any_order(folder, files, data):
    paths = []
    for number, (text, second) in enumerate(files):
        path = folder / f"{number}.txt"
        path.write_text(text)
        os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))
        paths.append(path)
    shuffled = data.draw(st.permutations(paths))
    again = data.draw(st.lists(st.sampled_from(paths), max_size=2))
    first, first_books = build(folder / "a", paths, "ab" * 32)
    second, second_books = build(folder / "b", [*shuffled, *again], "ab" * 32)
    assert second.equals(first)
    assert second_books.equals(first_books)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_each_field_comes_from_the_newest_record_that_has_it(tmp_path, order):
    texts = [
        "JobID|Submit|State|User|AllocCPUS\n1|2024-03-04T08:00:00|COMPLETED|ada|1\n",
        "JobID|Submit|State|User|JobName\n1|2024-03-04T08:00:00|COMPLETED|bo|fit\n",
        "JobID|Submit|State|MaxRSS|AllocCPUS\n1|2024-03-04T08:00:00|COMPLETED|5K|2\n",
    ]
    paths = []
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_text(text)
        # The second file is the newest, the first the oldest.
        os.utime(tmp_path / str(number), (1_700_000_000 + (0, 2, 1)[number],) * 2)
        paths.append(tmp_path / str(number))
    table, _ = build(tmp_path / "site", [paths[k] for k in order], "cd" * 32)
    row = table.row(0, named=True)
    assert (row["user"], row["job_name"], row["cpus"], row["max_rss_bytes"]) == ("bo", "fit", 2, 5 << 10)
