"""Job scripts of a simulated site: people copy a template of their application, edit it, and change its inputs now and then.

Seed of a site, application, user, campaign -> script_of -> text of a batch script.

A user has habits (how a script begins and ends) and for each application a template with edits that stay; now and then a campaign
takes another template. Inputs and numbers are those of the campaign, and some options and lines come and go.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Final

_OTHER_TEMPLATE: Final = 0.1  # share of campaigns that are written over a template that is not the user's usual one
_OPTION_OF_USER: Final = 0.4  # chance of each option and further line to be in a user's copy
_OPTION_OF_CAMPAIGN: Final = 0.12  # chance of each to be added to, or taken from, the script of one campaign
_BEGINNINGS: Final = (
    "set -e",
    "set -euo pipefail",
    "module purge",
    "source ~/.bashrc",
    "cd $SLURM_SUBMIT_DIR",
    "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
    "ulimit -s unlimited",
    "mkdir -p logs",
    'echo "start $(date)"',
    "hostname",
    "env | sort > env.txt",
    "scontrol show job $SLURM_JOB_ID",
)
_ENDINGS: Final = ("echo done", "date", "sacct -j $SLURM_JOB_ID --format=Elapsed,MaxRSS", "rm -rf $TMPDIR/*", "touch finished")
_HABIT: Final = 0.3  # chance of a user to have each of these
_WORDS: Final = "north delta sample run7 control mutant large p53 seaice wing batch test2 orig final v3 lake".split()


@dataclass(frozen=True, slots=True)
class ScriptTemplate:
    """What people copy from each other: modules, the lines that do the work, and what some add."""

    application: str
    number: int  # among those of the application
    modules: tuple[str, ...]
    body: tuple[str, ...]
    options: tuple[str, ...]
    further: tuple[str, ...]


@cache
def script_templates() -> Mapping[str, tuple[ScriptTemplate, ...]]:
    """The templates of each application, by its name."""
    table = tomllib.loads(files(__package__).joinpath("script_templates.toml").read_text(encoding="utf-8"))
    return {
        application: tuple(
            ScriptTemplate(application, number, *(tuple(entry[key]) for key in ("modules", "body", "options", "further")))
            for number, entry in enumerate(entries)
        )
        for application, entries in table.items()
    }


def template_of(seed: int, application: str, user: str, campaign: int) -> ScriptTemplate:
    """The template that this user's campaign is written over."""
    templates = script_templates()[application]
    usual = _rng(seed, "template", user, application).randrange(len(templates))
    rng = _rng(seed, "template", user, application, campaign)
    return templates[rng.randrange(len(templates)) if rng.random() < _OTHER_TEMPLATE else usual]


def script_of(seed: int, application: str, user: str, campaign: int) -> str:
    """The batch script of a user's campaign with an application."""
    return _written(template_of(seed, application, user, campaign), seed, user, campaign)


def unrelated_script(seed: int, user: str, campaign: int) -> str:
    """A batch script that says nothing: the template is drawn for each campaign, whatever it runs, and so are the habits."""
    rng = _rng(seed, "unrelated", user, campaign)
    template = rng.choice([template for several in script_templates().values() for template in several])
    return _written(template, seed, str(rng.random()), campaign)


def _written(template: ScriptTemplate, seed: int, user: str, campaign: int) -> str:
    habits = _rng(seed, "habits", user)
    beginning, ending = (_some(lines, habits, _HABIT) for lines in (_BEGINNINGS, _ENDINGS))
    own = _rng(seed, "copy", user, template.application, template.number)
    today = _rng(seed, "campaign", user, template.application, campaign)
    options = _changed(template.options, _some(template.options, own, _OPTION_OF_USER), today)
    further = _changed(template.further, _some(template.further, own, _OPTION_OF_USER), today)
    *before, last = template.body
    lines = [
        "#!/bin/bash",
        f"#SBATCH --time={today.randrange(1, 24)}:00:00",
        *beginning,
        *(f"module load {module}/{own.randrange(1, 9)}.{today.randrange(3)}" for module in template.modules),
        *before,
        " ".join((last, *options)),
        *further,
        *ending,
    ]
    filled = {"{input}": f"{today.choice(_WORDS)}{today.randrange(100)}", "{number}": str(today.randrange(1, 64))}
    text = "\n".join(lines) + "\n"
    for slot, value in filled.items():
        text = text.replace(slot, value)
    return text


def _some(lines: Sequence[str], rng: Random, share: float) -> list[str]:
    return [line for line in lines if rng.random() < share]


def _changed(lines: Sequence[str], usual: Sequence[str], rng: Random) -> list[str]:
    return [line for line in lines if (line in usual) != (rng.random() < _OPTION_OF_CAMPAIGN)]


def _rng(*what: object) -> Random:
    return Random("/".join(map(str, what)))  # noqa: S311 - a simulation, not a secret
