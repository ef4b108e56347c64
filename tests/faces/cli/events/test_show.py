import json

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.events.show import show
from stormpetrel.faces.cli.options import Context
from tests.builders import make_site
from tests.parts.made_events import H0, HOUR, seen_of

app = typer.Typer()
app.command("show")(show)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with make_site(
        tmp_path_factory.mktemp("show") / "site",
        site={"time_zone": "Europe/Berlin"},
        elastic={"url": "http://127.0.0.1:1", "index": "events-*"},
    ) as opened:
        rows = [(hour, "Submit", 1000 + hour) for hour in range(30) if hour != 26]
        rows += [(28, "JobReconnectFailed", 3), (28, "Strange\x1b[31m", 1)]
        rows += [(28, "Submit", 900, "site", "FNAL"), (28, "Submit", 128, "site", "[red]"), (29, "Submit", 5, "site", "FNAL")]
        counts = seen_of(rows, 0, 30, unseen=[27], source="elastic:events-*")
        end = H0 + HOUR * 30
        opened.event_counts.replace(counts, source="elastic:events-*", start=H0, end=end, bucket_s=3600)
        seen = opened.event_counts.coverage(bucket_s=3600)
        gap = (H0 + HOUR * 27, H0 + HOUR * 28, "no index")
        opened.event_counts.reasons.update("elastic:events-*", [gap], seen=seen, now=end)
        yield opened


def run(site, *words):
    return CliRunner().invoke(app, list(words), obj=Context(site_folder=site.folder, debug=False))


def test_programs_get_zeros_as_zeros_gaps_as_null_with_their_reason_and_the_query(site):
    told = json.loads(run(site, "--last", "4", "--json").stdout)
    assert [row["time"] for row in told["rows"]] == [(H0 + HOUR * hour).isoformat() for hour in range(26, 30)]
    zero, gap, full, _ = told["rows"]
    assert zero["gap"] is None and set(zero["counts"].values()) == {0}
    assert gap["gap"] == "no index" and gap["counts"] is None
    assert full["counts"]["Submit"] == 1028 and full["counts"]["JobReconnectFailed"] == 3
    assert told["totals"]["Submit"] == 1028 + 1029 and told["bucket_s"] == 3600
    (query,) = told["queries"]
    assert query["source"] == "elastic:events-*" and query["query"]["path"] == "/events-*/_search" and query["query"]["bodies"]


def test_people_see_a_table_of_the_last_day_in_the_zone_of_the_site(site):
    text = run(site).output
    lines = text.splitlines()
    assert "POST /events-*/_search" in text and '"aggs"' in text
    assert "24 buckets of 60 min, 1 of them gaps" in text and "none of: Execute" in text
    gap = next(line for line in lines if "gap: " in line)
    assert gap.startswith("2024-04-01 17:00") and gap.endswith("gap: no index")  # 15:00 UTC
    assert next(line for line in lines if line.startswith("2024-04-01 18:00")).split()[2:] == ["1,028", "3", "1"]
    assert next(line for line in lines if line.startswith("2024-04-01 16:00")).split()[2:] == ["0", "0", "0"]
    assert next(line for line in lines if line.startswith("total")).split()[1] == f"{sum(range(1006, 1030)) - 1026 - 1027 + 0:,}"
    assert "\x1b" not in text and "\\x1b" in text


def test_a_span_is_cut_by_the_clock_of_the_site(site):
    told = json.loads(run(site, "--since", "2024-03-31T20:00", "--until", "2024-03-31 22:00", "--json").stdout)
    assert [row["time"] for row in told["rows"]] == ["2024-03-31T18:00:00+00:00", "2024-03-31T19:00:00+00:00"]


def test_counts_are_split_by_place_the_largest_first(site):
    told = json.loads(run(site, "--last", "3", "--by", "site", "--json").stdout)
    assert [(row["value"], row["counts"]["Submit"]) for row in told["places"]] == [("FNAL", 905), ("[red]", 128)]
    assert "[red]" in run(site, "--by", "site").output
    assert "No source knows the node" in run(site, "--by", "node").output


def test_what_is_no_time_and_a_time_without_counts_are_told(site):
    assert isinstance(run(site, "--since", "yesterday").exception, UsageError)
    assert "No bucket of this time was seen whole. Counts reach from" in run(site, "--since", "2030-01-01").output
    assert isinstance(run(site, "--since", "2026-01-02", "--until", "2026-01-01").exception, UsageError)
