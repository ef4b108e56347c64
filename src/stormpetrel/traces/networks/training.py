"""Training: an autoencoder learns to give back the windows of normal jobs.

Windows (train, validation) -> train_network -> weights with the lowest validation error, losses per epoch. Adam on the mean
squared error over the four modes; the learning rate is halved where the validation error stalls, and training stops where that
no longer helps. Same seed, windows, device and number of threads: same weights, also if it was stopped and went on.

Checkpoints: everything that a training needs to go on as if it had never been stopped.

TrainingState <-> one safetensors file, replaced whole or not at all; what is no tensor stands in its header as JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from torch.nn import functional

from stormpetrel.engine import Progress
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.private_files import write_private
from stormpetrel.records.windows import Windows
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, check_shape, graph_numbers
from stormpetrel.traces.networks.batches import BatchPlan
from stormpetrel.traces.networks.layers import AutoencoderNetwork, make_network

CHECKPOINT_EVERY_S: Final = 10.0
WORTH: Final = 0.002  # the share by which an error must fall to be worth going on for
WARM_UP_EPOCHS: Final = 4
SMALLEST_BATCH: Final = 16
FAST_BATCH: Final = 64  # at most, for `fast`: with 256 its error is a quarter higher after as many epochs
FEWEST_STEPS: Final = 16  # per epoch, if there are windows for them
SMALLEST_SHARE: Final = 1e-3  # of a mode, where its mean is lower
SHIFTED_SHARE: Final = 0.75  # of the windows of a batch, where `fast` learns
LARGEST_GRADIENT: Final = 1.0  # norm over all weights
JUDGED_AT_ONCE: Final = 4096  # windows per batch where nothing is learnt
FORMAT_VERSION: Final = 1
_LARGEST_BYTES: Final = 2 * 1024**3
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """The errors of each epoch: on the windows that were learnt from, while learning, and on those of the validation campaign."""

    train: tuple[float, ...]
    validation: tuple[float, ...]

    @property
    def best_epoch(self) -> int:
        """The epoch whose weights were kept, counted from 0."""
        return int(np.argmin(self.validation))

    @classmethod
    def of_record(cls, record: object) -> Self:
        """The history that a model's record holds; ValueError if it is none."""
        lists = [record.get(name) for name in ("train", "validation")] if isinstance(record, dict) else []
        losses = [tuple(float(loss) for loss in values) for values in lists if isinstance(values, list)]
        if len(losses) != 2 or len(losses[0]) != len(losses[1]) or not losses[0] or not np.isfinite(losses).all():
            raise ValueError("its history is not one error per epoch")
        return cls(*losses)


def device_named(name: str) -> torch.device:
    """The device to compute on: `auto` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"Unknown device {name[:40]!r}.", hint="Known: auto, cpu, cuda.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("There is no GPU that torch can use here.", hint="Say --device cpu or auto.")
    return device


def train_network(
    settings: AutoencoderSettings,
    train: Windows,
    validation: Windows,
    *,
    device: torch.device,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    start: AutoencoderNetwork | None = None,
) -> tuple[AutoencoderNetwork, TrainingHistory]:
    """Train a network on normal windows; a checkpoint that is there is gone on from. `start` has the weights to begin with."""
    training = _Training(settings, train, validation, device, start)
    task = _task(settings, train, validation, device) if checkpoint else ""
    if checkpoint and (state := read_checkpoint(checkpoint, task)):
        training.restore(state, checkpoint)
    written = -math.inf
    while not training.is_over():
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            training.epoch()
        if checkpoint and (training.is_over() or time.monotonic() - written >= CHECKPOINT_EVERY_S):
            write_checkpoint(checkpoint, training.state(), task)
            written = time.monotonic()
        if progress:
            progress(training.fraction(), training.words())
    return training.best_network(), TrainingHistory(tuple(training.losses), tuple(training.judged))


class _Training:
    """A training at some epoch."""

    def __init__(
        self,
        settings: AutoencoderSettings,
        train: Windows,
        validation: Windows,
        device: torch.device,
        start: AutoencoderNetwork | None = None,
    ) -> None:
        self.settings = settings
        self.device = device
        self.network = make_network(settings)
        if start is None:
            begin_at_the_mean(self.network, train)
        else:
            self.network.load_state_dict(start.state_dict())
        self.network.to(device)
        self.adam = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.best: Tensors = {}
        self.losses: list[float] = []
        self.judged: list[float] = []
        self.rates = torch.tensor(train.rates, dtype=torch.float32, device=device)  # (windows, steps, 4)
        self.plan = self._plan(train, batch_size(len(train), settings))
        self.validation_rates = torch.tensor(validation.rates, dtype=torch.float32, device=device)
        self.validation_batches = list(self._plan(validation, JUDGED_AT_ONCE).in_order())

    def _plan(self, windows: Windows, batch_windows: int) -> BatchPlan:
        numbers = graph_numbers(windows, self.settings.architecture)
        return BatchPlan(len(windows), numbers, batch_windows=batch_windows, device=self.device)

    def epoch(self) -> None:
        """See every window once, then judge by the validation windows."""
        for group in self.adam.param_groups:
            group["lr"] = learning_rate_after(self.judged, self.settings)
        self.network.train()
        total = torch.zeros((), device=self.device)
        for batch in self.plan.shuffled(self.generator):
            rates = self.rates[batch.rows]  # (batch, steps, 4)
            if self.settings.architecture is Architecture.FAST:
                rates = shifted(rates, self.generator)
            loss = functional.mse_loss(self.network(rates, batch.graphs), rates)
            self.adam.zero_grad()
            loss.backward()
            # Without this bound a Job-GNN in ten lost in one step what it had learnt in twenty epochs.
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
            self.adam.step()
            total += loss.detach() * len(rates)
        self.losses.append(float(total) / len(self.rates))
        self.judged.append(self._validation_error())
        if not math.isfinite(self.losses[-1]) or not math.isfinite(self.judged[-1]):
            raise ModelError(
                f"Training diverged in epoch {len(self.losses)}: the error is no longer a number.",
                hint=f"Lower the learning rate (it is {self.settings.learning_rate:g}).",
            )
        if self.judged[-1] == min(self.judged):
            self.best = _copied(self.network.state_dict())

    @torch.no_grad()
    def _validation_error(self) -> float:
        self.network.eval()
        total = torch.zeros((), device=self.device)
        for batch in self.validation_batches:
            rates = self.validation_rates[batch.rows]
            total += functional.mse_loss(self.network(rates, batch.graphs), rates) * len(rates)
        return float(total) / len(self.validation_rates)

    def is_over(self) -> bool:
        """Whether all epochs are done, or none of the last was better."""
        epochs = len(self.judged)
        return epochs >= self.settings.max_epochs or (epochs > 0 and _since_better(self.judged)[-1] >= self.settings.patience)

    def fraction(self) -> float:
        """The share of the work that is done, as far as one can know: training stops where it no longer helps."""
        return 1.0 if self.is_over() else len(self.judged) / self.settings.max_epochs

    def words(self) -> str:
        """Where the training stands."""
        return f"epoch {len(self.judged)}: validation error {self.judged[-1]:.5f}, best {min(self.judged):.5f}"

    def best_network(self) -> AutoencoderNetwork:
        """The network with the weights of the best epoch."""
        self.network.load_state_dict(self.best)
        return self.network.eval()

    def state(self) -> TrainingState:
        """Everything that is needed to go on from here."""
        moments = {name: self._moments(weights) for name, weights in self.network.named_parameters()}
        return TrainingState(
            weights=self.network.state_dict(),
            best=self.best,
            adam_mean={name: moment["exp_avg"] for name, moment in moments.items()},
            adam_square={name: moment["exp_avg_sq"] for name, moment in moments.items()},
            adam_steps=int(max(float(moment["step"]) for moment in moments.values())),
            generator=self.generator.get_state().numpy().tobytes(),
            train=self.losses,
            validation=self.judged,
        )

    def _moments(self, weights: torch.nn.Parameter) -> dict[str, Any]:
        """What Adam knows of some weights; zeros of those that nothing goes through, as messages on nodes of one thread."""
        none = {"exp_avg": torch.zeros_like(weights), "exp_avg_sq": torch.zeros_like(weights), "step": 0}
        return self.adam.state.get(weights) or none

    def restore(self, state: TrainingState, path: Path) -> None:
        """Go back to a state; ModelError if it is not one of this training."""
        try:
            self.network.load_state_dict(state.best)  # only to see that they fit
            self.network.load_state_dict(state.weights)
            for name, weights in self.network.named_parameters():
                moments = {"exp_avg": state.adam_mean[name], "exp_avg_sq": state.adam_square[name]}
                self.adam.state[weights] = {
                    "step": torch.tensor(float(state.adam_steps)),
                    **{moment: tensor.reshape(weights.shape).to(self.device) for moment, tensor in moments.items()},
                }
            self.generator.set_state(torch.frombuffer(bytearray(state.generator), dtype=torch.uint8))
        except (KeyError, RuntimeError) as error:
            raise ModelError(
                f"The checkpoint {path} does not fit this training: {type(error).__name__}.", hint="Delete it to begin anew."
            ) from None
        self.best = {name: tensor.to(self.device) for name, tensor in state.best.items()}
        self.losses, self.judged = state.train, state.validation


def batch_size(windows: int, settings: AutoencoderSettings) -> int:
    """Windows per step: those of the settings, or fewer, so that a short recording has some steps per epoch as well."""
    most = min(settings.batch_windows, FAST_BATCH) if settings.architecture is Architecture.FAST else settings.batch_windows
    return min(most, max(SMALLEST_BATCH, windows // FEWEST_STEPS))


@torch.no_grad()
def begin_at_the_mean(network: AutoencoderNetwork, windows: Windows) -> None:
    """Let a new network answer with the mean shares of the modes, whatever it is asked.

    From an even answer, windows of nodes that mostly idle drive `other` so far up in the first steps that the softmax saturates:
    its gradient is then zero, and the network says "idle" for ever.
    """
    mean = torch.from_numpy(windows.rates.mean(axis=(0, 1), dtype=np.float64))  # (4,)
    network.decoder.begin_at(mean.clamp_min(SMALLEST_SHARE))


def shifted(rates: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Most windows, drawn by lot, begun at another of their steps; what comes before it follows at the end.

    A layer with weights of its own for every place in the window sees each place as often as a convolution does: on simulated
    campaigns the error of `fast` on unseen windows falls by a third.
    """
    windows, steps = rates.shape[:2]
    by = torch.randint(steps, (windows,), generator=generator)
    by *= torch.rand(windows, generator=generator) < SHIFTED_SHARE
    order = (torch.arange(steps) + by[:, None]) % steps  # (windows, steps)
    return torch.take_along_dim(rates, order.to(rates.device)[:, :, None], dim=1)


def learning_rate_after(judged: list[float], settings: AutoencoderSettings) -> float:
    """The learning rate of the next epoch: slow at first, halved each time a third of the patience brought no better error."""
    wait = max(1, settings.patience // 3)
    halvings = sum(since > 0 and since % wait == 0 for since in _since_better(judged))
    return settings.learning_rate * min(1.0, (len(judged) + 1) / WARM_UP_EPOCHS) * 0.5**halvings


def check_windows(settings: AutoencoderSettings, train: Windows, validation: Windows) -> None:
    """ModelError where nothing can be learnt from these windows."""
    for what, windows in (("train on", train), ("stop by (the validation campaign)", validation)):
        if not len(windows):
            raise ModelError(f"There are no normal windows to {what}.", hint="Record or simulate a campaign first.")
        check_shape(settings, windows)
    if abs(train.step_s - validation.step_s) > 0.01 * train.step_s:
        raise ModelError(f"Training windows have steps of {train.step_s:g} s, validation windows of {validation.step_s:g} s.")
    if settings.architecture is Architecture.JOB_GNN and not (train.job >= 0).any():
        raise ModelError(
            "The job GNN puts the threads of a job side by side, and no window says which job it belongs to.",
            hint="Train vanilla or node_gnn, or collect the jobs of the threads with `stormpetrel exporter`.",
        )


def fingerprint(windows: Windows) -> str:
    """A digest of what a network sees of some windows."""
    digest = hashlib.sha256(np.ascontiguousarray(windows.rates).tobytes())
    for column in (windows.node_graphs(), windows.job_graphs()):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _task(settings: AutoencoderSettings, train: Windows, validation: Windows, device: torch.device) -> str:
    parts = {"settings": settings.record(), "windows": [fingerprint(train), fingerprint(validation)], "device": device.type}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _since_better(judged: list[float]) -> list[int]:
    """For each epoch, how many have gone by since the error was last better; crumbs do not count as better."""
    mark, since, values = math.inf, 0, []
    for error in judged:
        since = 0 if error < (1 - WORTH) * mark else since + 1
        mark = error if since == 0 else mark
        values.append(since)
    return values


def _copied(weights: Tensors) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


@dataclass(slots=True)
class TrainingState:
    """A training between two epochs."""

    weights: Tensors
    best: Tensors  # weights of the epoch with the lowest validation error
    adam_mean: Tensors
    adam_square: Tensors
    adam_steps: int
    generator: bytes
    train: list[float] = field(default_factory=list)  # error per epoch
    validation: list[float] = field(default_factory=list)


def write_checkpoint(path: Path, state: TrainingState, task: str) -> None:
    """Put the state of a training in place of the one before; `task` tells apart what is trained on what."""
    from safetensors.torch import save

    parts = {"weights": state.weights, "best": state.best, "mean": state.adam_mean, "square": state.adam_square}
    named = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    contents = {key: tensor.detach().cpu().contiguous() for key, tensor in named.items()}
    header = {
        "format_version": FORMAT_VERSION,
        "task": task,
        "adam_steps": state.adam_steps,
        "generator": state.generator.hex(),
        "train": state.train,
        "validation": state.validation,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, save(contents, metadata={"state": json.dumps(header)}))


def read_checkpoint(path: Path, task: str) -> TrainingState | None:
    """The state of a training that was stopped, or None if there is none; ModelError if it is another's or damaged."""
    if not path.exists():
        return None
    try:
        header, tensors = _parts(path)
        if header["format_version"] != FORMAT_VERSION or header["task"] != task:
            raise ModelError(
                f"The checkpoint {path} is of a training with other settings or other windows.",
                hint="Delete it to begin anew, or name another.",
            )
        return TrainingState(
            weights=tensors["weights"],
            best=tensors["best"],
            adam_mean=tensors["mean"],
            adam_square=tensors["square"],
            adam_steps=int(header["adam_steps"]),
            generator=bytes.fromhex(header["generator"]),
            train=[float(loss) for loss in header["train"]],
            validation=[float(loss) for loss in header["validation"]],
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(
            f"The checkpoint {path} cannot be read: {type(error).__name__}.", hint="Delete it to begin anew."
        ) from None


def _parts(path: Path) -> tuple[dict[str, Any], dict[str, Tensors]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
        raise ValueError("no checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["state"])
            tensors: dict[str, Tensors] = {}
            for key in file.keys():  # noqa: SIM118  (it is no dict)
                part, _, name = key.partition("/")
                tensors.setdefault(part, {})[name] = file.get_tensor(key)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    if not isinstance(header, dict):
        raise TypeError("the header is no record")
    return header, tensors
