"""Training of the recurrent network: a loop with early stopping, and checkpoints from which it continues.

Lesson (network, loss, rows to learn, judge) -> train -> weights of the best epoch, errors per epoch. Same seed and same series:
same weights, also if the training was stopped and went on. Needs torch; what scores does not.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.events.recurrent.numpy_cells import Sizes
from stormpetrel.private_files import write_private

CHECKPOINT_FORMAT: Final = 1
CHECKPOINT_EVERY_S: Final = 10.0
LARGEST_GRADIENT: Final = 1.0  # norm over all weights
WORTH: Final = 0.0002  # by how much an error must fall to be worth going on for, as a share of its size
_LARGEST_BYTES: Final = 1024**3

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast and how long a network learns."""

    learning_rate: float
    batch: int
    max_epochs: int
    patience: int  # epochs without a better error before it stops; the rate is halved half-way there
    seed: int
    decay: float = 0.0  # of the weights, per step and rate


class SequenceNetwork(nn.Module):
    """LSTM over the rows of a window, dropout, and the answer."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(sizes.width, sizes.hidden, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.answer = nn.Linear(sizes.hidden, sizes.outputs)

    def forward(self, window: Tensor) -> Tensor:
        """(batch, sequence, width) -> (batch, outputs)."""
        states, _ = self.lstm(window)  # (batch, sequence, hidden)
        answer: Tensor = self.answer(self.dropout(states[:, -1]))
        return answer


@dataclass(slots=True)
class Lesson:
    """What is learnt: everything that the loop needs to know of a model."""

    network: SequenceNetwork
    loss: Callable[[Tensor], Tensor]  # of the examples with these numbers: one figure to make smaller
    judge: Callable[[], float]  # error on what comes later than what is learnt
    examples: Callable[[torch.Generator], Tensor]  # the examples of an epoch, in the order in which they are learnt
    task: str = ""  # digest of settings and series: a checkpoint of another one is refused


@dataclass(slots=True)
class History:
    """The errors of each epoch."""

    train: list[float] = field(default_factory=list)
    judged: list[float] = field(default_factory=list)


def make_network(sizes: Sizes, *, dropout: float, seed: int) -> SequenceNetwork:
    """A network with the first weights of its seed; torch's own random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return SequenceNetwork(sizes, dropout)


def windows_of(columns: npt.NDArray[np.float64], sequence: int) -> Callable[[Tensor], Tensor]:
    """A function that gives the windows which end with some rows: (batch,) -> (batch, sequence, width)."""
    padded = torch.zeros((len(columns) + sequence, columns.shape[1]))
    padded[sequence:] = torch.from_numpy(columns).to(torch.float32)
    steps = torch.arange(1, sequence + 1)
    return lambda ends: padded[ends[:, None] + steps]


def train(
    lesson: Lesson, pace: Pace, *, checkpoint: Path | None = None, progress: Progress = no_progress
) -> tuple[dict[str, npt.NDArray[np.float32]], History]:
    """Learn until it no longer helps; a checkpoint that is there is gone on from."""
    training = _Training(lesson, pace)
    if checkpoint:
        training.go_on_from(checkpoint)
    written = -math.inf
    # One thread: batches are small, so a second one gains nothing, and the result does not depend on how many cores there are.
    with torch.random.fork_rng(devices=[]), _one_thread():
        while not training.is_over():
            training.epoch()
            if checkpoint and (training.is_over() or time.monotonic() - written >= CHECKPOINT_EVERY_S):
                _write(checkpoint, training.parts(), training.history, lesson.task)
                written = time.monotonic()
            progress(training.share(), training.words())
    return {name: weight.numpy().copy() for name, weight in training.best.items()}, training.history


def task_of(settings: Mapping[str, Any], *arrays: npt.NDArray[Any]) -> str:
    """A digest that tells apart what is learnt from what."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in arrays:
        digest.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class _Training:
    """A training between two epochs."""

    def __init__(self, lesson: Lesson, pace: Pace) -> None:
        self.lesson, self.pace = lesson, pace
        self.network = lesson.network
        self.adam = torch.optim.AdamW(self.network.parameters(), lr=pace.learning_rate, weight_decay=pace.decay)
        self.best: Tensors = {}
        self.history = History()

    def epoch(self) -> None:
        """Learn every example once, then judge."""
        number = len(self.history.judged)
        for group in self.adam.param_groups:
            group["lr"] = rate_after(self.history.judged, self.pace)
        # Dropout and order come from the seed and the epoch alone, so that a training that goes on needs no random state.
        torch.manual_seed(self.pace.seed * 100_003 + number)
        generator = torch.Generator().manual_seed(self.pace.seed * 100_003 + number)
        self.network.train()
        total, learnt = 0.0, 0
        for rows in torch.split(self.lesson.examples(generator), self.pace.batch):
            loss = self.lesson.loss(rows)
            self.adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
            self.adam.step()
            total, learnt = total + float(loss.detach()) * len(rows), learnt + len(rows)
        self.network.eval()
        with torch.no_grad():
            self._note(total / max(learnt, 1), self.lesson.judge())

    def _note(self, learnt: float, judged: float) -> None:
        if not math.isfinite(learnt) or not math.isfinite(judged):
            raise ModelError(
                f"Training diverged in epoch {len(self.history.judged) + 1}: the error is no longer a number.",
                hint=f"Lower the learning rate (it is {self.pace.learning_rate:g}).",
            )
        self.history.train.append(learnt)
        self.history.judged.append(judged)
        if judged == min(self.history.judged):
            self.best = {name: weight.detach().clone() for name, weight in self.network.state_dict().items()}

    def is_over(self) -> bool:
        """Whether all epochs are done, or none of the last was better."""
        judged = self.history.judged
        return len(judged) >= self.pace.max_epochs or (bool(judged) and _since_better(judged)[-1] >= self.pace.patience)

    def share(self) -> float:
        """The share of the work that is done, as far as one can know."""
        return 1.0 if self.is_over() else len(self.history.judged) / self.pace.max_epochs

    def words(self) -> str:
        """Where the training stands."""
        judged = self.history.judged
        return f"epoch {len(judged)}: validation error {judged[-1]:.4f}, best {min(judged):.4f}"

    def parts(self) -> dict[str, Tensors]:
        """Every tensor that is needed to go on from here."""
        moments = {name: self.adam.state[weight] for name, weight in self.network.named_parameters()}
        return {
            "weights": self.network.state_dict(),
            "best": self.best,
            **{moment: {name: moments[name][moment] for name in moments} for moment in ("exp_avg", "exp_avg_sq", "step")},
        }

    def go_on_from(self, path: Path) -> None:
        """Take up a training that was stopped, if there is one; ModelError if it is another's."""
        saved = _read(path, self.lesson.task)
        if saved is None:
            return
        parts, self.history = saved
        try:
            self.network.load_state_dict(parts["best"])  # only to see that they fit
            self.network.load_state_dict(parts["weights"])
            for name, weight in self.network.named_parameters():
                moments = {moment: parts[moment][name] for moment in ("exp_avg", "exp_avg_sq")}
                self.adam.state[weight] = {"step": parts["step"][name].reshape(()), **_shaped(moments, weight)}
        except (KeyError, RuntimeError) as error:
            raise ModelError(
                f"The checkpoint {path} does not fit this training: {type(error).__name__}.", hint="Delete it to begin anew."
            ) from None
        self.best = parts["best"]


def rate_after(judged: list[float], pace: Pace) -> float:
    """The learning rate of the next epoch: halved each time half of the patience brought no better error."""
    wait = max(1, pace.patience // 2)
    return pace.learning_rate * 0.5 ** sum(since > 0 and since % wait == 0 for since in _since_better(judged))


def _since_better(judged: list[float]) -> list[int]:
    """For each epoch, how many have gone by since the error was last better; crumbs do not count as better."""
    best, since, counts = math.inf, 0, []
    for error in judged:
        better = best == math.inf or error < best - WORTH * abs(best)
        best, since = (error, 0) if better else (best, since + 1)
        counts.append(since)
    return counts


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _shaped(moments: Tensors, weight: Tensor) -> Tensors:
    return {name: moment.reshape(weight.shape) for name, moment in moments.items()}


def _write(path: Path, parts: dict[str, Tensors], history: History, task: str) -> None:
    """Put a checkpoint in place of the one before, whole or not at all; what is no tensor stands in its header as JSON."""
    from safetensors.torch import save

    contents = {f"{part}/{name}": tensor.detach().contiguous() for part, named in parts.items() for name, tensor in named.items()}
    header = {"format": CHECKPOINT_FORMAT, "task": task, "train": history.train, "judged": history.judged}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, save(contents, metadata={"state": json.dumps(header)}))


def _read(path: Path, task: str) -> tuple[dict[str, Tensors], History] | None:
    if not path.exists():
        return None
    try:
        header, parts = _parts_of(path)
        mine = header["format"] == CHECKPOINT_FORMAT and header["task"] == task
        history = History([float(loss) for loss in header["train"]], [float(loss) for loss in header["judged"]])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(
            f"The checkpoint {path} cannot be read: {type(error).__name__}.", hint="Delete it to begin anew."
        ) from None
    if not mine:
        raise ModelError(
            f"The checkpoint {path} is of a training with other settings or another series.",
            hint="Delete it to begin anew, or name another.",
        )
    return parts, history


def _parts_of(path: Path) -> tuple[dict[str, Any], dict[str, Tensors]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
        raise ValueError("no checkpoint")
    parts: dict[str, Tensors] = {}
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["state"])
            for key in file.keys():  # noqa: SIM118  (it is no dict)
                part, _, name = key.partition("/")
                parts.setdefault(part, {})[name] = file.get_tensor(key)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return header, parts
