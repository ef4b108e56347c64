"""Settings of the recurrent networks: everything that decides what they become; saved beside their weights.

Nothing here needs torch: the scoring without it reads the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, Final, Self

from stormpetrel.errors import ModelError

_WHOLE: Final = {  # name -> smallest, largest
    "sequence": (2, 2048),
    "hidden": (1, 1024),
    "inner": (0, 1024),
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
    "contamination": 0.5,
}


class Balance(StrEnum):
    """How the few hours of outages are made to count beside the many normal ones."""

    WEIGHTS = "weights"  # every hour is learnt once per epoch; an hour of an outage weighs more
    SAMPLED = "sampled"  # every epoch draws as many hours of outages as normal ones


@dataclass(frozen=True, slots=True)
class _Settings:
    """What both networks have."""

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

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ModelError(f"The settings of a recurrent network have {problem}.")

    def _problems(self) -> list[str]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
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
        return wrong

    def record(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: object) -> Self:
        """The settings that a record holds; ModelError says what is wrong with it."""
        if not isinstance(record, Mapping) or set(record) != {one.name for one in fields(cls)}:
            raise ModelError("The record of a recurrent network's settings does not name each of them once.")
        return cls(**record)


@dataclass(frozen=True, slots=True)
class LstmSettings(_Settings):
    """Settings of the supervised network; batch and the two classes are those of the published one, sequence and dropout ours."""

    balance: str = Balance.WEIGHTS.value

    def _problems(self) -> list[str]:
        wrong = _Settings._problems(self)
        if self.balance not in list(Balance):
            wrong.append(f"balance {str(self.balance)[:40]!r}; known are {', '.join(Balance)}")
        return wrong


@dataclass(frozen=True, slots=True)
class ForecastSettings(_Settings):
    """Settings of the recurrent forecaster."""

    sequence: int = 12  # fewer than the other: what it hardly sees it cannot get used to
    batch: int = 128
    dropout: float = 0.2
    inner: int = 48
    max_epochs: int = 60
    contamination: float = 0.02  # share of counts that are taken to come from no calm bucket
