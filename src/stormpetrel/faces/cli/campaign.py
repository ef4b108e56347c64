"""`stormpetrel campaign run|simulate`: labelled recordings to learn from, of jobs that run here or of a simulated cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Json, console, plain, print_json

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.campaigns import CampaignReceipt

app = typer.Typer(help="Labelled recordings of CPU traces.", no_args_is_help=True)
ALL_TYPES = "np,bad_io,good_io,mpi,idle"

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the campaigns; made if it is not there.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="What the order, the places and the jobs are drawn from.")]


class SplitName(StrEnum):
    """What a campaign is for; the words of `records.traces.Split`, which is too heavy for --help."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@app.command("run")
def run(
    folder: Folder,
    split: Annotated[
        SplitName | None, typer.Option("--split", help="What the campaign is for: train if left out.", show_default=False)
    ] = None,
    whole_set: Annotated[
        bool, typer.Option("--set", help="Run three campaigns in one go, for train, validation and test.")
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="Name of the campaign; train-1, train-2, … if left out.", show_default=False)
    ] = "",
    types: Annotated[str, typer.Option("--types", help="Job types, separated by commas.")] = ALL_TYPES,
    seconds_per_job: Annotated[float, typer.Option("--seconds-per-job", help="How long each job runs.")] = 300.0,
    repeat: Annotated[int, typer.Option("--repeat", help="How often the whole set of jobs is run.")] = 1,
    cpus: Annotated[
        str, typer.Option("--cpus", help="CPUs to use, such as 0,1 or 0-3; all if left out.", show_default=False)
    ] = "",
    prometheus: Annotated[
        str, typer.Option("--prometheus", help="A server that scrapes an exporter here already.", show_default=False)
    ] = "",
    node: Annotated[str, typer.Option("--node", help="With --prometheus: what it calls this machine.", show_default=False)] = "",
    scratch: Annotated[
        Path | None, typer.Option("--scratch", help="Folder on a disk, for the files of the IO jobs.", show_default=False)
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run jobs of known types on this machine, record what its CPUs do, and write it down with labels.

    Ctrl-C ends the jobs and what records them; of the campaign that was running nothing is written.
    """
    if whole_set and split is not None:
        raise UsageError("--set makes a campaign for each split.", hint="Leave --split out.")
    from stormpetrel.answers.schemas.campaigns import CampaignRun
    from stormpetrel.answers.studies.campaigns import run_campaigns
    from stormpetrel.answers.viewer import LOCAL

    act = CampaignRun(
        split=split.value if split else "train",
        whole_set=whole_set,
        name=name,
        types=types,
        seconds_per_job=seconds_per_job,
        repeat=repeat,
        cpus=cpus,
        prometheus=prometheus,
        node=node,
        scratch=scratch,
        seed=seed,
    )
    with _share_bar("campaign", shown=not as_json) as progress:
        receipt = run_campaigns(folder, LOCAL, act, progress=progress)
    _show(receipt, as_json=as_json)


@app.command("simulate")
def simulate(
    folder: Folder,
    train: Annotated[int, typer.Option("--train", help="Campaigns to train on.")] = 3,
    validation: Annotated[int, typer.Option("--validation", help="Campaigns that say when to stop training.")] = 1,
    test: Annotated[int, typer.Option("--test", help="Campaigns to judge by.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of the simulated cluster.")] = 5,
    threads: Annotated[int, typer.Option("--threads", help="Threads per node.")] = 32,
    minutes: Annotated[float, typer.Option("--minutes", help="Length of each campaign.")] = 30.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write simulated campaigns, in the layout of recorded ones."""
    from stormpetrel.answers.schemas.campaigns import CampaignSimulation
    from stormpetrel.answers.studies.campaigns import simulate_campaigns
    from stormpetrel.answers.viewer import LOCAL

    act = CampaignSimulation(
        train=train, validation=validation, test=test, nodes=nodes, threads=threads, minutes=minutes, seed=seed
    )
    with _share_bar("simulating", shown=not as_json) as progress:
        receipt = simulate_campaigns(folder, LOCAL, act, progress=progress)
    _show(receipt, as_json=as_json)


@contextmanager
def _share_bar(title: str, *, shown: bool) -> Iterator[Callable[[float, str], None]]:
    """A bar over the share that is done, with the time left and what is being done; silent where nobody watches."""
    if not shown or not sys.stderr.isatty():
        yield lambda _share, _words: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}", markup=False),
    )
    # Once a second: drawing must not be what an idle CPU is seen doing.
    with Progress(*columns, console=console(error=True), transient=True, refresh_per_second=1) as bar:
        task = bar.add_task(title, total=1.0, words="")
        yield lambda share, words: bar.update(task, completed=share, words=plain(words))


def _show(receipt: CampaignReceipt, *, as_json: bool) -> None:
    if as_json:
        print_json(receipt)
        return
    out = console()
    for campaign in receipt.campaigns:
        facts = campaign.facts
        out.print(f"{plain(campaign.path)}: {facts['split']}, {facts['steps']:,} steps of {facts['step_s']:g} s")
        _show_types(facts["types"])
        if "recording" in facts:
            check = facts["recording"]["exporter_check"]
            compared, agree = check["steps_compared"], check["agree"]
            out.print(f"  the exporter named the same job for {agree:,} of {compared:,} steps of a thread")
        for problem in facts["problems"]:
            out.print(f"  {plain(problem)}")
    if receipt.campaigns:
        folder = Path(receipt.campaigns[0].path).parent
        out.print(f"to judge models by it: stormpetrel traces evaluate {plain(str(folder))}")


def _show_types(types: dict[str, dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2))
    for heading in ("job type", "thread steps", "user", "system", "iowait", "other"):
        table.add_column(heading, justify="left" if heading == "job type" else "right")
    for job_type, row in types.items():
        shares = [f"{row[mode]:.1%}" if mode in row else "" for mode in ("user", "system", "iowait", "other")]
        table.add_row(job_type, f"{row['thread_steps']:,.0f}", *shares)
    console().print(table)
