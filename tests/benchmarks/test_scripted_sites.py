"""Sites with scripts: what is judged differs in names and scripts alone."""

from __future__ import annotations

import polars as pl
import pytest
from benchmarks.scripted_sites import scripted_site

from stormpetrel.jobs.history.keys import family
from stormpetrel.records.jobs import SCRIPT_SIGNATURE
from stormpetrel.records.states import DEFAULT_FAILURE_STATES
from stormpetrel.simulate.spec import ClusterSpec

SPEC = ClusterSpec(days=4, nodes=8, seed=7)
FAILED = pl.col("state").is_in(list(map(str, DEFAULT_FAILURE_STATES)))


@pytest.fixture(scope="module")
def site():
    return scripted_site("related", SPEC)


def test_the_forms_of_a_site_differ_in_names_and_signatures_alone(site):
    assert site.unnamed.drop("job_name").equals(site.named.drop("job_name"))
    assert site.unnamed.drop("extra").equals(site.signed.drop("extra"))
    assert site.signed.select(pl.col("extra").map.get(SCRIPT_SIGNATURE).is_not_null().mean()).item() == 1.0


def test_names_say_nothing_and_telling_names_say_the_application(site):
    assert site.unnamed.select(family().n_unique()).item() > 50
    assert set(site.named["job_name"]) == set(site.templates.str.split("-").list.first())


def test_fragile_templates_fail_more_whoever_uses_them(site):
    def rates(jobs: pl.DataFrame) -> pl.DataFrame:
        return jobs.with_columns(template=site_of.templates).group_by("template").agg(FAILED.mean().alias("rate"), pl.len())

    site_of = site
    before = rates(site.unnamed)
    site_of = scripted_site("fragile", SPEC)
    after = rates(site_of.unnamed)
    grown = after.join(before, on="template", suffix="_before").filter(
        pl.col("len") > 30, pl.col("rate") > pl.col("rate_before") + 0.2
    )
    assert 1 <= grown.height <= after.height / 2


def test_unrelated_scripts_change_nothing_but_the_signatures(site):
    control = scripted_site("unrelated", SPEC)
    assert control.unnamed.equals(site.unnamed)
    signatures = (jobs["extra"].to_list() for jobs in (control.signed, site.signed))
    assert next(signatures) != next(signatures)
