"""Simulated sites whose job names say nothing and whose jobs have scripts.

Kind, seed -> scripted_site -> ScriptedSite: the same jobs with and without signatures of their scripts, and with names that tell.

Each campaign has a name and a directory of its own, of words that mean nothing. Its script is written over a template of its
application (`simulate/job_scripts.py`); at a *fragile* site a quarter of the templates crash in half of their jobs, whoever uses
them; at an *unrelated* one, a control, the templates are drawn.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Final, Literal

import polars as pl

from stormpetrel.records.jobs import JOB_SCHEMA, SCRIPT_SIGNATURE
from stormpetrel.simulate.arrivals import Submission
from stormpetrel.simulate.cluster import ended_jobs
from stormpetrel.simulate.frames import FrameMaker
from stormpetrel.simulate.job_scripts import script_of, script_templates, template_of, unrelated_script
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.sources.scripts.signature import script_signature

Kind = Literal["related", "fragile", "unrelated"]
WORDS: Final = (
    "coarse fine wide deep fast slow final early cold warm north south small large plain mixed box ring mesh grid wave slab tube "
    "core film cube cell disk node chain sheet cloud"
).split()
_FRAGILE_SHARE: Final = 0.25  # of the templates
_CRASHES: Final = 0.5  # share of the jobs of a fragile template


@dataclass(frozen=True, slots=True)
class ScriptedSite:
    """The jobs of a site in four forms; only names and `extra` differ."""

    unnamed: pl.DataFrame  # names that say nothing, no scripts
    signed: pl.DataFrame  # the same with signatures of scripts
    named: pl.DataFrame  # names tell the application, at a fragile site the template as well
    templates: pl.Series  # of each job


def three_words(user: str, name: str) -> str:
    """Three words in place of a campaign's name; they say nothing of it."""
    number = zlib.crc32(f"{user}/{name}".encode())
    return "-".join(WORDS[number // len(WORDS) ** place % len(WORDS)] for place in range(3))


def scripted_site(kind: Kind, spec: ClusterSpec) -> ScriptedSite:
    """The jobs of a simulated site with scripts."""
    people = make_population(spec, spec.seed)
    fragile = _fragile_templates(spec.seed) if kind == "fragile" else frozenset()
    rng = Random(f"{spec.seed}/fragile")

    def broken(job: Submission) -> Submission:
        user, application = people.users[job.user].name, people.applications[job.application].name
        template = template_of(spec.seed, application, user, job.campaign)
        if (template.application, template.number) not in fragile or rng.random() >= _CRASHES:
            return job
        return job._replace(crash_s=min(job.crash_s, int(rng.lognormvariate(3.0, 1.2)) + 1))

    jobs = FrameMaker(spec, people).frame(list(ended_jobs(spec, people, change=broken)))
    works = jobs.select("user", "job_name").unique(maintain_order=True)
    rows = [_work_row(kind, spec.seed, user, name) for user, name in works.iter_rows()]
    columns = ("word_name", "template", "telling_name", "signature")
    texts = works.with_columns(pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row"))
    jobs = jobs.join(texts, on=["user", "job_name"], how="left", maintain_order="left")
    unnamed = jobs.with_columns(
        job_name="word_name",
        work_dir=pl.format("/scratch/{}/{}", "user", "word_name"),
        script_path=pl.lit("job.sh"),
        submit_line=pl.lit("sbatch job.sh"),
    )
    extra = [{SCRIPT_SIGNATURE: signature} for signature in jobs["signature"]]
    signatures = pl.Series("extra", extra, dtype=JOB_SCHEMA["extra"])
    return ScriptedSite(
        unnamed=unnamed.drop(columns),
        signed=unnamed.with_columns(signatures).drop(columns),
        named=unnamed.with_columns(job_name="telling_name").drop(columns),
        templates=jobs["template"],
    )


def _fragile_templates(seed: int) -> frozenset[tuple[str, int]]:
    templates = [(one.application, one.number) for one in chain(*script_templates().values())]
    return frozenset(Random(f"{seed}/fragile templates").sample(templates, round(_FRAGILE_SHARE * len(templates))))


def _work_row(kind: Kind, seed: int, user: str, name: str) -> tuple[str, str, str, str | None]:
    """The words, the template, a name that tells, and the signature of the script of a user's campaign."""
    application, _, number = name.partition("-")
    campaign = int(number)
    template = template_of(seed, application, user, campaign)
    letter = "abcdefgh"[template.number]  # no digit: it would not be part of an application's name
    script = unrelated_script(seed, user, campaign) if kind == "unrelated" else script_of(seed, application, user, campaign)
    telling = f"{application}-{letter}" if kind == "fragile" else application
    return three_words(user, name), f"{application}-{letter}", telling, script_signature(script)
