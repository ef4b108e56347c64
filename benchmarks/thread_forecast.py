"""What a thread will do in the next ten seconds, with and without a look at the other threads of its job.

Windows of past and future -> past_and_future -> fit -> TraceForecaster -> forecast -> mean rates of each coming second.
The encoder and the message passing are those of the autoencoders. The forecast begins as "it goes on like this" and learns what
to change: what it is worth is told beside that rule. Published work left open whether neighbours help in forecasting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.records.traces import MODES
from stormpetrel.records.windows import WINDOW_STEPS, Windows
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, graph_numbers
from stormpetrel.traces.networks.batches import BatchPlan
from stormpetrel.traces.networks.layers import Encoder
from stormpetrel.traces.networks.message_passing import Graphs, MessagePassing
from stormpetrel.traces.networks.training import device_named

SECONDS: Final = 10  # how far it looks ahead
_SMALLEST_SHARE: Final = 2e-3  # a mode that was not seen at all is not impossible
_AT_ONCE: Final = 4096

Rates = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """What decides what a forecaster becomes; `neighbours` lets it hear of the other threads of the job."""

    neighbours: bool = False
    past_steps: int = WINDOW_STEPS
    seconds: int = SECONDS
    embedding: int = 64
    seed: int = 0
    max_epochs: int = 60
    patience: int = 8
    batch_windows: int = 512
    learning_rate: float = 1e-3

    def encoder(self) -> AutoencoderSettings:
        """The same as the settings of an encoder of the past."""
        kind = Architecture.JOB_GNN if self.neighbours else Architecture.VANILLA
        return AutoencoderSettings(architecture=kind, steps=self.past_steps, embedding=self.embedding, seed=self.seed)


def steps_needed(settings: ForecastSettings, step_s: float) -> int:
    """How many steps a window needs that holds both the past and the seconds to foretell."""
    return settings.past_steps + settings.seconds * steps_per_second(step_s)


def steps_per_second(step_s: float) -> int:
    """How many steps make a second; UsageError where that is not a whole number."""
    steps = round(1 / step_s) if step_s > 0 else 0
    if steps < 1 or abs(steps * step_s - 1) > 1e-6:
        raise UsageError(
            f"Steps of {step_s:g} s do not make up a second.", hint="Forecasts are made from steps of 1, .5, .2 or .1 s."
        )
    return steps


def past_and_future(windows: Windows, settings: ForecastSettings) -> tuple[Windows, Rates]:
    """The past of each window, and the mean rates of each of the seconds after it: (windows, seconds, 4)."""
    every = steps_per_second(windows.step_s)
    if windows.steps != steps_needed(settings, windows.step_s):
        raise UsageError(f"The windows have {windows.steps} steps; {steps_needed(settings, windows.step_s)} are needed.")
    future = windows.rates[:, settings.past_steps :].reshape(len(windows), settings.seconds, every, len(MODES)).mean(axis=2)
    return replace(windows, rates=np.ascontiguousarray(windows.rates[:, : settings.past_steps])), future


def goes_on(past: Windows, *, seconds: int = SECONDS, last_s: int = 1) -> Rates:
    """The rule to beat: the mean of the last second (or of some more) goes on: (windows, seconds, 4)."""
    last = past.rates[:, -last_s * steps_per_second(past.step_s) :].mean(axis=1)  # (windows, 4)
    return np.repeat(last[:, None], seconds, axis=1)


class ForecastNetwork(nn.Module):
    """Encoder, message passing, and what changes in the coming seconds.

    Without neighbours the message is nothing, but the layers are there: both kinds are of one size, and differ in what they hear.
    """

    def __init__(self, settings: ForecastSettings, steps_of_last_second: int) -> None:
        super().__init__()
        shape = settings.encoder()
        self.last, self.seconds = steps_of_last_second, settings.seconds
        self.encoder = Encoder(shape)
        self.message_passing = MessagePassing(settings.embedding)
        self.hidden = nn.Linear(settings.embedding, shape.hidden)
        self.change = nn.Linear(shape.hidden, settings.seconds * len(MODES))
        nn.init.zeros_(self.change.weight)  # it starts as "it goes on like this"
        nn.init.zeros_(self.change.bias)

    def forward(self, past: Tensor, graphs: Graphs | None) -> Tensor:
        """(windows, steps, 4) -> (windows, seconds, 4)."""
        z = self.message_passing(self.encoder(past), graphs or Graphs(()))  # (windows, embedding)
        change = self.change(functional.relu(self.hidden(z))).view(len(past), self.seconds, len(MODES))
        last = past[:, -self.last :].mean(dim=1, keepdim=True).clamp_min(_SMALLEST_SHARE)  # (windows, 1, 4)
        return functional.softmax(last.log() + change, dim=2)


class TraceForecaster:
    """Foretells the mean rates of the coming seconds of each thread."""

    network_: ForecastNetwork
    history_: list[float]  # validation error of each epoch

    def __init__(self, settings: ForecastSettings | None = None) -> None:
        self.settings = settings or ForecastSettings()

    def fit(self, train: Windows, validation: Windows, *, device: str = "auto") -> Self:
        """Learn from windows of past and future of normal jobs, and stop by those of the validation campaign."""
        train, validation = train.of_normal(), validation.of_normal()
        if not len(train) or not len(validation):
            raise ModelError("There are no normal windows to learn from or to stop by.", hint="Simulate longer campaigns.")
        training = _Training(self.settings, train, validation, device_named(device))
        while not training.is_over():
            training.epoch()
        self.network_, self.history_ = training.best_network(), training.judged
        return self

    @torch.no_grad()
    def forecast(self, past: Windows) -> Rates:
        """The mean rates of each coming second: (windows, seconds, 4), sums to one."""
        if not hasattr(self, "network_"):
            raise ModelError("This forecaster has not been trained yet.", hint="Train it first: fit(train, validation).")
        device = next(self.network_.parameters()).device
        foretold = np.empty((len(past), self.settings.seconds, len(MODES)), dtype=np.float32)
        rates = torch.from_numpy(np.ascontiguousarray(past.rates))
        for batch in _plan(past, self.settings, _AT_ONCE, device).in_order():
            rows = batch.rows.cpu()
            foretold[rows.numpy()] = self.network_(rates[rows].to(device), batch.graphs).cpu().numpy()
        return foretold


class _Training:
    """A training at some epoch: Adam on the mean squared error over the coming seconds and the four modes."""

    def __init__(self, settings: ForecastSettings, train: Windows, validation: Windows, device: torch.device) -> None:
        self.settings = settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.network = ForecastNetwork(settings, steps_per_second(train.step_s)).to(device)
        self.adam = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.judged: list[float] = []
        self.best: dict[str, Tensor] = {}
        past, future = past_and_future(train, settings)
        self.past, self.future = torch.from_numpy(past.rates).to(device), torch.from_numpy(future).to(device)
        self.plan = _plan(past, settings, settings.batch_windows, device)
        past, future = past_and_future(validation, settings)
        self.judged_past, self.judged_future = torch.from_numpy(past.rates).to(device), torch.from_numpy(future).to(device)
        self.judged_batches = list(_plan(past, settings, _AT_ONCE, device).in_order())

    def epoch(self) -> None:
        """See every window once, then judge; the learning rate is halved after some epochs without a better error."""
        rate = self.settings.learning_rate * 0.5 ** (self._stalled() // max(1, self.settings.patience // 3))
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.network.train()
        for batch in self.plan.shuffled(self.generator):
            loss = functional.mse_loss(self.network(self.past[batch.rows], batch.graphs), self.future[batch.rows])
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()
        self.judged.append(self._error())
        if self.judged[-1] == min(self.judged):
            self.best = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}

    @torch.no_grad()
    def _error(self) -> float:
        self.network.eval()
        total = 0.0
        for batch in self.judged_batches:
            foretold = self.network(self.judged_past[batch.rows], batch.graphs)
            total += float(functional.mse_loss(foretold, self.judged_future[batch.rows])) * len(batch.rows)
        return total / len(self.judged_past)

    def _stalled(self) -> int:
        return len(self.judged) - 1 - int(np.argmin(self.judged)) if self.judged else 0

    def is_over(self) -> bool:
        """Whether all epochs are done, or none of the last was better."""
        return len(self.judged) >= self.settings.max_epochs or self._stalled() >= self.settings.patience

    def best_network(self) -> ForecastNetwork:
        """The network with the weights of the best epoch."""
        self.network.load_state_dict(self.best)
        return self.network.eval()


def _plan(windows: Windows, settings: ForecastSettings, batch_windows: int, device: torch.device) -> BatchPlan:
    numbers = graph_numbers(windows, settings.encoder().architecture)
    return BatchPlan(len(windows), numbers, batch_windows=batch_windows, device=device)
