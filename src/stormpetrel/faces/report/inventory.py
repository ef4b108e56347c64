"""Every table and figure of the four published studies: whether the report draws it, where, and if not, why not.

sections of a report -> inventory_section -> Section: a line per item, with a link, the command that makes it alone, and the seed.

What is drawn says so itself (`Table.shows`, `Drawing.shows`); what a section could not draw, it gives a reason for
(`Section.missing`). Everything else has its reason here, so that no item is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stormpetrel.faces.report.blocks import NOTHING, Column, Drawing, Link, Section, Table, flat_blocks

TITLE: Final = "The published studies, item by item"
HPE, JLAB, POSTER, GPGRID, GENERATOR = "hpe", "jlab", "poster", "gpgrid", "generator"
STUDIES: Final = {
    HPE: (
        "Early job failure",
        "Proactive Precision: Enhancing High-Performance Computing with Early Job Failure Detection (HPE)",
    ),
    JLAB: ("CPU traces", "EPJ Web of Conferences 337, 01120 (2025), CHEP 2024 (Jefferson Lab)"),
    POSTER: ("CPU traces, poster", "Decode the Workload, CHEP 2024 (Jefferson Lab)"),
    GPGRID: ("Alarm of the cluster", "A recurrent network on FIFE Batch Monitoring (Fermilab GPGrid)"),
    GENERATOR: ("Job trace generator", "Job Trace Generator, poster (UNC Charlotte)"),
}
_NEEDS: Final = {
    HPE: "needs jobs that ended, failed ones among them: stormpetrel ingest jobs FILE",
    JLAB: "needs scored trace windows: stormpetrel ingest traces FILE, traces train, traces score",
    POSTER: "needs scored trace windows: stormpetrel ingest traces FILE, traces train, traces score",
    GPGRID: "needs counts of job events: stormpetrel ingest events FILE",
    GENERATOR: "needs jobs that ended: stormpetrel ingest jobs FILE",
}
_NETWORK: Final = "A drawing of a kind of network that teaches the reader; it shows no data."


@dataclass(frozen=True, slots=True)
class Item:
    """A table or figure of a published study.

    `command` makes the same alone; `seed` is the one that it is drawn with here, where it depends on one. `reason` says why the
    report never draws it, and where to look instead; it is empty where the report does.
    """

    key: str
    label: str
    content: str
    command: str = ""
    seed: int | None = None
    reason: str = ""

    @property
    def study(self) -> str:
        """The key of its study in STUDIES."""
        return self.key.partition("-")[0]


ITEMS: Final = (
    Item("hpe-fig-1", "Fig. 1", "flow of a prediction, live and offline",
         reason="A diagram of the software, no data. Ours: docs/architecture.md, 'Path of a live job'."),
    Item("hpe-fig-2", "Fig. 2", "imbalance of the labels", "stormpetrel jobs profiles --plot FILE"),
    Item("hpe-fig-3", "Fig. 3", "elbow of the number of profiles", "stormpetrel jobs profiles --plot FILE", 0),
    Item("hpe-fig-4", "Fig. 4", "profiles by resources, run time and wait time", "stormpetrel jobs profiles", 0),
    Item("hpe-fig-5", "Fig. 5", "profiles by duration", "stormpetrel jobs profiles --plot FILE", 0),
    Item("hpe-fig-6", "Fig. 6", "profiles by user activity", "stormpetrel jobs profiles --plot FILE", 0),
    Item("hpe-fig-7", "Fig. 7", "profiles by status", "stormpetrel jobs profiles --plot FILE", 0),
    Item("hpe-fig-8", "Fig. 8", "profiles by type", "stormpetrel jobs profiles --plot FILE", 0),
    Item("hpe-fig-9", "Fig. 9", "correlations with the job state", "stormpetrel jobs features --plot FILE", 0),
    Item("hpe-table-1", "Table I", "four models by precision, recall, F1 and accuracy",
         "stormpetrel jobs evaluate --protocol seed --plot FILE", 0),
    Item("hpe-fig-10", "Fig. 10", "ROC curve", "stormpetrel jobs evaluate --protocol seed --plot FILE", 0),
    Item("hpe-fig-11", "Fig. 11", "confidence of both classes", "stormpetrel jobs evaluate --protocol seed --plot FILE", 0),
    Item("hpe-fig-12", "Fig. 12", "dashboard: the table of predictions", "stormpetrel serve", 0),
    Item("hpe-fig-13", "Fig. 13", "five steps in Jupyter",
         reason="A picture of a user interface. Ours: EarlyWarning, in examples/early-warning.ipynb and docs/notebook.md."),
    Item("hpe-fig-14", "Fig. 14", "jobs as they are loaded in Jupyter", "stormpetrel sql 'select * from jobs limit 5'"),
    Item("hpe-fig-15", "Fig. 15", "predictions with their confidence", "stormpetrel jobs predict --last 12", 0),
    Item("hpe-fig-16", "Fig. 16", "SHAP waterfall of one job", "stormpetrel jobs explain JOBID --plot FILE", 0),
    Item("jlab-table-1", "Table 1", "job types of the campaigns", "stormpetrel traces map"),
    Item("jlab-fig-1a", "Fig. 1a", "windows of each job type on two components", "stormpetrel traces sampling PATH --plot FILE",
         0),
    Item("jlab-fig-1b", "Fig. 1b", "silhouette by sampling interval", "stormpetrel traces sampling PATH --plot FILE", 0),
    Item("jlab-fig-2", "Fig. 2", "original and reconstructed traces", "stormpetrel traces evaluate PATH --plot FILE", 0),
    Item("jlab-table-2", "Table 2", "reconstruction errors and silhouette of three architectures",
         "stormpetrel traces evaluate PATH --keep DIR", 0),
    Item("jlab-fig-3", "Fig. 3", "reconstruction error of each job type", "stormpetrel traces evaluate PATH --plot FILE", 0),
    Item("jlab-fig-4a", "Fig. 4a", "embeddings on two components", "stormpetrel traces map --plot FILE", 0),
    Item("jlab-fig-4b", "Fig. 4b", "largest iowait against the distance to Bad IO", "stormpetrel traces diagnose --plot FILE", 0),
    Item("poster-data", "Data", "job types: the same as Table 1 of the paper", "stormpetrel traces map"),
    Item("poster-sampling", "Sampling", "silhouette by sampling: the same as Fig. 1b", "stormpetrel traces sampling PATH", 0),
    Item("poster-features", "Features", "original and reconstruction: the same as Fig. 2", "stormpetrel traces evaluate PATH", 0),
    Item("poster-anomaly", "Anomaly", "reconstruction errors: the same as Fig. 3", "stormpetrel traces evaluate PATH", 0),
    Item("poster-diagnosis", "Diagnosis", "embeddings and iowait: the same as Fig. 4", "stormpetrel traces diagnose", 0),
    Item("poster-table", "Table", "three architectures: the same as Table 2", "stormpetrel traces evaluate PATH --keep DIR",
         0),
    Item("gpgrid-fig-1", "Fig. 1", "a simple neural network", reason=_NETWORK),
    Item("gpgrid-fig-2", "Fig. 2", "a complex neural network", reason=_NETWORK),
    Item("gpgrid-fig-3", "Fig. 3", "batch monitoring pipeline",
         reason="A diagram of Fermilab's services, no data. How ours reads them: docs/elastic.md and docs/outages.md."),
    Item("gpgrid-fig-4", "Fig. 4", "a query on Kibana",
         reason="A picture of another program. What we send to Elasticsearch and OpenSearch: docs/elastic.md."),
    Item("gpgrid-fig-5", "Fig. 5", "hourly counts as the script saw them", "stormpetrel events show --last 24"),
    Item("gpgrid-fig-6", "Fig. 6", "outage timeline", "stormpetrel serve"),
    Item("gpgrid-fig-7", "Fig. 7", "a convolutional network", reason=_NETWORK),
    Item("gpgrid-fig-8", "Fig. 8", "a recurrent network", reason=_NETWORK),
    Item("gpgrid-fig-9", "Fig. 9", "a recurrent network, unrolled", reason=_NETWORK),
    Item("gpgrid-fig-10", "Fig. 10", "repeating modules of an RNN", reason=_NETWORK),
    Item("gpgrid-fig-11", "Fig. 11", "repeating modules of an LSTM", reason=_NETWORK),
    Item("gpgrid-fig-12", "Fig. 12", "code of the RNN",
         reason="A listing. Ours, which runs: stormpetrel/events/recurrent/ in the package."),
    Item("gpgrid-fig-13", "Fig. 13", "code that trains the model",
         reason="A listing; the study ended before its model worked and prints no result. Ours: stormpetrel events evaluate."),
    Item("generator-fig-1", "Fig. 1", "a job trace (Theta)", "stormpetrel sql 'select * from jobs limit 5'"),
    Item("generator-fig-2", "Fig. 2", "how jobs are submitted and logged",
         reason="A diagram, no data. Ours: docs/architecture.md, 'Path of a record'."),
    Item("generator-fig-3", "Fig. 3", "a variational autoencoder",
         reason="A drawing of a method. To run it on these jobs: stormpetrel synth evaluate FILE --model tvae."),
    Item("generator-fig-4", "Fig. 4", "a generative adversarial network",
         reason="A drawing of a method. To run it on these jobs: stormpetrel synth evaluate FILE --model copulagan."),
    Item("generator-results", "Results", "distributions of real and synthetic jobs", "stormpetrel synth compare FILE SYNTHETIC",
         0),
)  # fmt: skip
_BY_KEY: Final = {item.key: item for item in ITEMS}


def item_label(key: str) -> str:
    """What an item is called on the page: 'Early job failure, Fig. 4'. KeyError where there is none of that key."""
    item = _BY_KEY[key]
    return f"{STUDIES[item.study][0]}, {item.label}"


def inventory_section(sections: Sequence[Section]) -> Section:
    """The section that leads to every item, or says why it is not there."""
    drawn, missing = _drawn(sections), _missing(sections)
    columns = (Column("item"), Column("what it shows"), Column("here"), Column("the same alone"), Column("seed"))
    tables = (
        Table(name, columns, tuple(_row(item, drawn, missing) for item in ITEMS if item.study == study), reference)
        for study, (name, reference) in STUDIES.items()
    )
    here = sum(item.key in drawn for item in ITEMS)
    intro = (
        f"{here} of {len(ITEMS)} tables and figures are drawn below from this data, beside the numbers that were published; the "
        "others have a reason. The commands work on a site; those of jobs also take the files of a log."
    )
    return Section(TITLE, intro, tuple(tables))


def _row(item: Item, drawn: dict[str, str], missing: dict[str, str]) -> tuple[object, ...]:
    title = drawn.get(item.key)
    place = Link(title, item.key) if title else item.reason or missing.get(item.key) or _NEEDS[item.study]
    seed = NOTHING if item.seed is None else str(item.seed)
    return item.label, item.content, place, item.command or NOTHING, seed


def _drawn(sections: Sequence[Section]) -> dict[str, str]:
    """Key -> title of the section, of every item that a block shows."""
    return {key: section.title for section in sections for key in _keys(section)}


def _keys(section: Section) -> Iterator[str]:
    for block in flat_blocks(section):
        if isinstance(block, Table | Drawing):
            yield from block.shows


def _missing(sections: Sequence[Section]) -> dict[str, str]:
    return {key: reason for section in sections for key, reason in section.missing.items()}
