"""Simulated job scripts: those of one template look alike whoever edits them, and those of others do not."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from stormpetrel.simulate.job_scripts import script_of, script_templates, template_of, unrelated_script
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.sources.scripts.job_script import parse_job_script
from stormpetrel.sources.scripts.signature import script_signature

SEED = 5
USERS = ("anbe001", "chido002", "elfa003", "giho004")


def agreement(one: str, other: str) -> float:
    values = list(zip(*((script_signature(text) or "").split("-") for text in (one, other)), strict=True))
    return sum(left == right for left, right in values) / len(values)


def test_every_application_has_a_few_templates():
    applications = {application.name for application in make_population(ClusterSpec(), SEED).applications}
    assert set(script_templates()) == applications
    assert all(len(templates) >= 2 for templates in script_templates().values())


@pytest.mark.parametrize("application", sorted(script_templates()))
def test_a_script_is_a_batch_script_that_the_reader_understands(application):
    text = script_of(SEED, application, USERS[0], 3)
    assert text == script_of(SEED, application, USERS[0], 3)
    assert "{" not in text.replace("${", "")
    reading = parse_job_script(text, name="job.sh")
    assert not reading.warnings
    assert reading.signature


def test_campaigns_differ_in_their_inputs_and_are_signed_alike():
    texts = {script_of(SEED, "align", USERS[0], campaign) for campaign in range(20) if _template("align", 0, campaign) == 0}
    assert len(texts) > 10
    assert min(agreement(one, other) for one, other in combinations(texts, 2)) > 0.4


def test_scripts_of_one_template_are_nearer_than_those_of_others():
    works = [(application, user, 1) for application, user in product(("align", "train", "chem", "flow"), USERS)]
    scripts = {work: script_of(SEED, *work) for work in works}
    pairs = [(template_of(SEED, *one) == template_of(SEED, *other), agreement(scripts[one], scripts[other]))
             for one, other in combinations(works, 2)]  # fmt: skip
    alike, unlike = ([share for same, share in pairs if same is wanted] for wanted in (True, False))
    assert sum(alike) / len(alike) > 0.45 > 0.2 > sum(unlike) / len(unlike)


def test_an_unrelated_script_says_nothing_of_its_user():
    scripts = [unrelated_script(SEED, USERS[0], campaign) for campaign in range(12)]
    shares = [agreement(one, other) for one, other in combinations(scripts, 2)]
    assert sum(shares) / len(shares) < 0.25


def _template(application: str, user: int, campaign: int) -> int:
    return template_of(SEED, application, USERS[user], campaign).number - template_of(SEED, application, USERS[user], 0).number
