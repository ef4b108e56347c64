"""The supervised network: an LSTM over the last hours that tells normal operation from an outage.

labelled EventSeries -> fit -> SupervisedLstm -> score (log odds of an outage). torch is needed to learn, not to score.

Softmax over two classes, cross-entropy, Adam and batches of 20 are those of the published network. How many hours it sees at once
is not published, and dropout is named there as a next step: both are chosen here. Its counts come in against their slow level and
the hour of the week: with a few dozen outages to learn from, a network does not find both by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.events.contract import Scores
from stormpetrel.events.recurrent.features import Mask, Scaling, is_seen, level_buckets
from stormpetrel.events.recurrent.numpy_cells import Sizes, answers, check_weights
from stormpetrel.learn.metrics import pr_auc
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.records.event_series import ANOMALY, NORMAL, EventSeries, Labels

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from stormpetrel.events.recurrent.training import Lesson

KIND: Final = "events-supervised"
CLASSES: Final = 2  # normal, outage
VALIDATION_SHARE: Final = 0.25  # the later part of the training series, by which training stops
FEWEST_TO_JUDGE: Final = 2  # outages that the later part must hold, and the earlier part too; with fewer all are learnt
_BLIND_EPOCHS: Final = 12  # where there is nothing to judge by
_JUDGED_AT_ONCE: Final = 2048


class SupervisedLstm:
    """A network that has seen outages with their labels, and says how much a bucket looks like one."""

    scaling_: Scaling
    weights_: dict[str, npt.NDArray[np.float32]]
    history_: dict[str, list[float]]  # errors per epoch: train, judged

    def __init__(self, settings: LstmSettings | None = None, *, seed: int | None = None) -> None:
        base = settings or LstmSettings()
        self.settings = base if seed is None else replace(base, seed=seed)

    @property
    def history_buckets(self) -> int:
        """How many buckets before a bucket its score depends on: its sequence, what fills a gap in it, and the slow level."""
        bucket_s = self.scaling_.bucket_s if hasattr(self, "scaling_") else 3600
        return 2 * self.settings.sequence + level_buckets(bucket_s)

    def fit(self, series: EventSeries, *, progress: Progress = no_progress, checkpoint: Path | None = None) -> Self:
        """Learn from the labels of a series; gaps, maintenance and buckets without a label teach nothing.

        With a checkpoint, a training that was stopped goes on where it was; the result is the same as without the stop.
        """
        _check_labels(series)
        need_torch()
        from stormpetrel.events.recurrent.training import Pace, train

        self.scaling_ = Scaling.of(series)
        lesson, epochs = self._lesson(series)
        settings = self.settings
        pace = Pace(settings.learning_rate, settings.batch, epochs, settings.patience, settings.seed, settings.decay)
        self.weights_, history = train(lesson, pace, checkpoint=checkpoint, progress=progress)
        self.history_ = {"train": history.train, "judged": history.judged}
        return self

    def score(self, series: EventSeries, *, since: int = 0) -> Scores:
        """(buckets,) log odds of an outage; NaN at a gap, where the sequence is not full yet, and before place `since`."""
        if not hasattr(self, "weights_"):
            raise ModelError("This network has not been trained yet.", hint="Train it first: fit(series).")
        mine = self.scaling_.fitting(series)
        scores = np.full(len(mine), np.nan)
        wanted = ~mine.is_gap & (np.arange(len(mine)) >= max(since, self.settings.sequence - 1))
        ends = np.flatnonzero(wanted)
        if ends.size:
            columns = self._columns(mine)
            outputs = answers(self.weights_, columns, ends, self.settings.sequence)  # (buckets, 2)
            scores[ends] = outputs[:, 1] - outputs[:, 0]
        return scores

    def save(self, folder: Path) -> None:
        """Write the network to a folder that does not exist yet."""
        save_weights(folder, KIND, self.weights_, self._record())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a network, without torch; ModelFormatError says what is wrong with it."""
        record, weights = load_weights(folder, KIND)
        try:
            model = cls(LstmSettings.of_record(record["settings"]))
            model.scaling_ = Scaling.of_record(record["scaling"])
            model.history_ = {name: [float(loss) for loss in record["history"][name]] for name in ("train", "judged")}
            check_weights(weights, Sizes(model.scaling_.width, model.settings.hidden, CLASSES))
        except (ModelError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged(folder, error) from None
        model.weights_ = weights
        return model

    def _record(self) -> dict[str, Any]:
        return {"settings": self.settings.record(), "scaling": self.scaling_.record(), "history": self.history_}

    def _columns(self, series: EventSeries) -> npt.NDArray[np.float64]:
        return self.scaling_.departures(series, reach=self.settings.sequence)

    def _lesson(self, series: EventSeries) -> tuple[Lesson, int]:
        """What is learnt, and in how many epochs at most."""
        import torch
        from torch.nn import functional

        from stormpetrel.events.recurrent.training import Lesson, make_network, task_of, windows_of

        settings = self.settings
        columns = self._columns(series)
        taught = is_seen(series) & np.isin(series.label, (NORMAL, ANOMALY))
        taught[: min(settings.sequence, len(series) // 4)] = False
        learnt, judged = parted_by_time(series, taught)
        target = torch.from_numpy((series.label == ANOMALY).astype(np.int64))  # (buckets,)
        sizes = Sizes(width=columns.shape[1], hidden=settings.hidden, outputs=CLASSES)
        network = make_network(sizes, dropout=settings.dropout, seed=settings.seed)
        windows = windows_of(columns, settings.sequence)
        weight = class_weights(series.label[learnt])
        learn_weight = torch.tensor(weight if settings.balance == Balance.WEIGHTS else (1.0, 1.0))
        later = torch.from_numpy(np.flatnonzero(judged if judged.any() else learnt))

        pieces = torch.split(later, _JUDGED_AT_ONCE)

        def loss(rows: Tensor) -> Tensor:
            return functional.cross_entropy(network(windows(rows)), target[rows], weight=learn_weight)

        def judge() -> float:
            outputs = torch.cat([network(windows(rows)) for rows in pieces])  # (buckets, 2)
            # By rank, not by cross-entropy: that rises with the first epochs, while the order of the buckets still gets better.
            odds = (outputs[:, 1] - outputs[:, 0]).double().numpy()
            return 1 - (pr_auc(target[later].numpy() == 1, odds) or 0.0)

        task = task_of(settings.record(), columns, series.label)
        lesson = Lesson(network, loss, judge, _examples(series.label, learnt, settings), task)
        return lesson, settings.max_epochs if judged.any() else min(settings.max_epochs, _BLIND_EPOCHS)


def parted_by_time(series: EventSeries, taught: Mask) -> tuple[Mask, Mask]:
    """The buckets to learn from, and the later ones to stop by: none where outages are too few to be on both sides."""
    rows = np.arange(len(series))
    cut = int((1 - VALIDATION_SHARE) * len(series))
    while cut < len(series) and cut > 0 and series.label[cut] == ANOMALY:
        cut -= 1  # an outage lies on one side
    learnt, judged = taught & (rows < cut), taught & (rows >= cut)
    enough = min(outages_in(series.label, learnt), outages_in(series.label, judged)) >= FEWEST_TO_JUDGE
    return (learnt, judged) if enough else (taught, np.zeros_like(taught))


def outages_in(label: Labels, taught: Mask) -> int:
    """How many runs of buckets are labelled as an outage."""
    bad = np.concatenate([[False], (label == ANOMALY) & taught])
    return int((bad[1:] & ~bad[:-1]).sum())


def class_weights(label: Labels) -> tuple[float, float]:
    """What a normal bucket and one of an outage weigh, so that both classes count the same in all."""
    bad = float((label == ANOMALY).mean())
    return 0.5 / max(1 - bad, 1e-3), 0.5 / max(bad, 1e-3)


def _examples(label: Labels, learnt: Mask, settings: LstmSettings) -> Callable[[torch.Generator], Tensor]:
    """A function that gives the rows of an epoch: all, or as many of outages as normal ones."""
    import torch

    rows = torch.from_numpy(np.flatnonzero(learnt))
    if settings.balance == Balance.WEIGHTS:
        return lambda generator: rows[torch.randperm(len(rows), generator=generator)][: settings.most_examples]
    normal, bad = (torch.from_numpy(np.flatnonzero(learnt & (label == wanted))) for wanted in (NORMAL, ANOMALY))
    half = min(len(rows), settings.most_examples) // 2

    def drawn(generator: torch.Generator) -> Tensor:
        parts = [part[torch.randint(len(part), (half,), generator=generator)] for part in (normal, bad)]
        both = torch.cat(parts)
        return both[torch.randperm(len(both), generator=generator)]

    return drawn


def _check_labels(series: EventSeries) -> None:
    taught = is_seen(series)
    if not (taught & (series.label == ANOMALY)).any():
        raise ModelError(
            "No outage is labelled in this series, and the supervised network learns from labelled outages.",
            hint='Label some (stormpetrel events label), or train the unsupervised model: events.model = "unsupervised".',
        )
    if not (taught & (series.label == NORMAL)).any():
        raise ModelError(
            "No normal bucket is labelled in this series: every one is an outage, a maintenance, a gap or unlabelled.",
            hint="Use a longer series, or train the unsupervised model.",
        )


_WHOLE: Final = {  # name -> smallest, largest
    "sequence": (2, 2048),
    "hidden": (1, 1024),
    "batch": (1, 100_000),
    "max_epochs": (1, 10_000),
    "patience": (1, 10_000),
    "seed": (0, 2**31 - 1),
    "most_examples": (1, 10_000_000),
}
_REAL: Final = {  # name -> largest; the smallest is 0, which a learning rate may not be
    "dropout": 0.9,
    "learning_rate": 1.0,
    "decay": 1.0,
}


class Balance(StrEnum):
    """How the few hours of outages are weighted against the many normal ones."""

    WEIGHTS = "weights"  # every hour is learnt once per epoch; an hour of an outage weighs more
    SAMPLED = "sampled"  # every epoch draws as many hours of outages as normal ones


@dataclass(frozen=True, slots=True)
class LstmSettings:
    """Settings of the supervised network; batch and the two classes are those of the published one, sequence and dropout ours."""

    sequence: int = 24  # buckets that it sees at once
    hidden: int = 32
    dropout: float = 0.3
    seed: int = 0
    max_epochs: int = 40
    patience: int = 6
    learning_rate: float = 2e-3
    decay: float = 1e-3
    batch: int = 20
    most_examples: int = 20_000  # per epoch: a year of minutes is not learnt whole each time
    balance: str = Balance.WEIGHTS.value

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ModelError(f"The settings of a recurrent network have {problem}.")

    def _problems(self) -> list[str]:
        values = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        wrong = [
            f"{name} {value!r}; it is a whole number from {_WHOLE[name][0]} to {_WHOLE[name][1]:,}"
            for name, value in values.items()
            if name in _WHOLE and (type(value) is not int or not _WHOLE[name][0] <= value <= _WHOLE[name][1])
        ]
        wrong += [
            f"{name} {value!r}; it is a number from 0 to {_REAL[name]:g}"
            for name, value in values.items()
            if name in _REAL and (type(value) is not float or not 0 <= value <= _REAL[name])
        ]
        if not wrong and self.learning_rate == 0:
            wrong.append("a learning_rate of 0; it is above 0")
        if self.balance not in list(Balance):
            wrong.append(f"balance {str(self.balance)[:40]!r}; known are {', '.join(Balance)}")
        return wrong

    def record(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: object) -> Self:
        """The settings that a record holds; ModelError says what is wrong with it."""
        if not isinstance(record, Mapping) or set(record) != {setting.name for setting in fields(cls)}:
            raise ModelError("The record of a recurrent network's settings does not name each of them once.")
        return cls(**record)


FORMAT_VERSION: Final = 1
WEIGHTS: Final = "weights.safetensors"

Weights = dict[str, npt.NDArray[np.float32]]


def need_torch() -> None:
    """MissingExtraError where a recurrent network cannot be trained."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise MissingExtraError("Training a recurrent network of events", "traces")


def save_weights(folder: Path, kind: str, weights: Mapping[str, npt.NDArray[np.float32]], record: Mapping[str, Any]) -> None:
    """Write a network to a folder that does not exist yet, whole or not at all."""
    from safetensors.numpy import save

    contents = save({name: np.ascontiguousarray(weight, dtype=np.float32) for name, weight in weights.items()})
    save_model(folder, kind=kind, format_version=FORMAT_VERSION, metadata=record, files={WEIGHTS: contents})


def load_weights(folder: Path, kind: str) -> tuple[dict[str, Any], Weights]:
    """The record and the weights of a network; ModelFormatError says what is wrong with it."""
    if find_spec("safetensors") is None:
        raise MissingExtraError("A recurrent network of events", "scoring")
    from safetensors import SafetensorError
    from safetensors.numpy import load

    record, files = load_model_bytes(folder, kind=kind, format_version=FORMAT_VERSION)
    try:
        weights = load(files[WEIGHTS])
        if any(weight.dtype != np.float32 for weight in weights.values()):
            raise ValueError("its weights are not of 32 bits")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise damaged(folder, error) from None
    return record, weights


def damaged(folder: Path, error: Exception) -> ModelFormatError:
    """What to raise where a network cannot be made of what a folder holds."""
    return ModelFormatError(
        f"The model in {folder} is damaged: {str(error)[:200]}", hint="Train it again: stormpetrel events train"
    )
