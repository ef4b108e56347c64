"""`stormpetrel campaign run|simulate`: labelled recordings to learn from, of jobs that run here or of a simulated cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from stormpetrel.answers.schemas.trace_study import CampaignReceipt, CampaignRun, CampaignSimulation
from stormpetrel.answers.studies.trace_study import run_campaigns, simulate_campaigns
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json, Seed
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import share_bar
from stormpetrel.records.traces import Split

ALL_TYPES = "np,bad_io,good_io,mpi,idle"

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the campaigns; created if it does not exist.")]


def run(
    folder: Folder,
    split: Annotated[
        Split | None, typer.Option("--split", help="What the campaign is for: train if left out.", show_default=False)
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
    node: Annotated[str, typer.Option("--node", help="With --prometheus: its name for this machine.", show_default=False)] = "",
    scratch: Annotated[
        Path | None, typer.Option("--scratch", help="Folder on a disk, for the files of the IO jobs.", show_default=False)
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run jobs of known types on this machine, record its CPUs, and write the recording with labels.

    Ctrl-C ends the jobs and what records them; of the campaign that was running nothing is written.
    """
    if whole_set and split is not None:
        raise UsageError("--set records a campaign for each split.", hint="Leave --split out.")
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
    # Once a second: drawing must not be what an idle CPU is seen doing.
    with share_bar("campaign", quiet=as_json, refresh_per_s=1) as progress:
        receipt = run_campaigns(folder, LOCAL, act, progress=progress)
    emit(receipt, lambda out: _print_receipt(out, receipt), as_json=as_json)


def simulate(
    folder: Folder,
    train: Annotated[int, typer.Option("--train", help="Campaigns to train on.")] = 3,
    validation: Annotated[int, typer.Option("--validation", help="Campaigns for validation.")] = 1,
    test: Annotated[int, typer.Option("--test", help="Campaigns for test.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of the simulated cluster.")] = 5,
    threads: Annotated[int, typer.Option("--threads", help="Threads per node.")] = 32,
    minutes: Annotated[float, typer.Option("--minutes", help="Length of each campaign.")] = 30.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write simulated campaigns, in the layout of recorded ones."""
    act = CampaignSimulation(
        train=train, validation=validation, test=test, nodes=nodes, threads=threads, minutes=minutes, seed=seed
    )
    with share_bar("simulating", quiet=as_json) as progress:
        receipt = simulate_campaigns(folder, LOCAL, act, progress=progress)
    emit(receipt, lambda out: _print_receipt(out, receipt), as_json=as_json)


def _print_receipt(out: Console, receipt: CampaignReceipt) -> None:
    for campaign in receipt.campaigns:
        facts = campaign.facts
        out.print(f"{plain(campaign.path)}: {facts['split']}, {facts['steps']:,} steps of {facts['step_s']:g} s")
        out.print(_types_table(facts["types"]))
        if "recording" in facts:
            check = facts["recording"]["exporter_check"]
            compared, agree = check["steps_compared"], check["agree"]
            out.print(f"  the exporter named the same job for {agree:,} of {compared:,} steps of a thread")
        for problem in facts["problems"]:
            out.print(f"  {plain(problem)}")
    if receipt.campaigns:
        folder = Path(receipt.campaigns[0].path).parent
        out.print(f"to judge models by it: stormpetrel traces evaluate {plain(str(folder))}")


def _types_table(types: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2))
    for heading in ("job type", "thread steps", "user", "system", "iowait", "other"):
        table.add_column(heading, justify="left" if heading == "job type" else "right")
    for job_type, row in types.items():
        shares = [f"{row[mode]:.1%}" if mode in row else "" for mode in ("user", "system", "iowait", "other")]
        table.add_row(job_type, f"{row['thread_steps']:,.0f}", *shares)
    return table
