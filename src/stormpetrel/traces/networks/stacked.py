"""Stacked networks: several autoencoders of one shape that see the same windows side by side, for a device with many cores.

settings + weights of each model -> StackedNetwork: rates (windows, steps, 4) -> z (models, windows, embedding) -> error (models,
windows). The linear layers of all models are one product each, and so are the convolutions where Triton is there; a convolution
keeps steps before channels, as matrix units like it. `Precision.HALF` computes with 16-bit numbers and sums in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn import functional

from stormpetrel.records.traces import MODES
from stormpetrel.traces.networks.architecture import (
    INPUT_MODES,
    LEAK,
    PATCH_STEPS,
    Architecture,
    AutoencoderSettings,
)

if TYPE_CHECKING:
    from types import ModuleType

Weights = Mapping[str, Tensor]


class Precision(StrEnum):
    """The numbers in which a network is computed."""

    FULL = "full"  # 32 bits throughout, no rounding to fewer inside a product
    HALF = "half"  # 16 bits between layers, sums and the score in 32


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer of all models."""

    weight: Tensor  # (models, inside, outside)
    bias: Tensor  # (models, 1, outside)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of all models, as one matrix for each place of its kernel; the biases stay in 32 bits."""

    taps: Tensor  # (models, kernel, inside, outside)
    bias: Tensor  # (models, outside)
    residual: Tensor | None  # (models, inside, outside); None where the input itself is added, or nothing
    residual_bias: Tensor | None  # (models, outside)
    doubled: Tensor | None  # (models, 2, offsets, inside, outside): the taps for a decoder, whose input has each step twice
    first_offset: int  # of `doubled`: which step of the input its first matrix sees


class StackedNetwork:
    """Encoders, decoders and scores of several models of the same settings; without message passing, which is between them."""

    def __init__(
        self, settings: AutoencoderSettings, weights: Sequence[Weights], *, device: torch.device, precision: Precision
    ) -> None:
        self.settings, self.models, self.device = settings, len(weights), device
        self._dtype = torch.float16 if precision is Precision.HALF else torch.float32
        self._kernels = _kernels(device)
        stacked = {name: torch.stack([model[name] for model in weights]).to(device, torch.float32) for name in weights[0]}
        self._fast = settings.architecture is Architecture.FAST
        if self._fast:
            self._take_patches(stacked)
        else:
            self._take_convolutions(stacked)

    def encode(self, rates: Tensor) -> Tensor:
        """Rates (windows, steps, 4) in 32 bits -> z (models, windows, embedding) before message passing."""
        x = self._encoded_patches(rates) if self._fast else self._encoded_blocks(rates)  # (models, windows, flat)
        return _product(self._bent(self._hidden, x), self._embedding).float()

    def decode(self, z: Tensor) -> Tensor:
        """Z (models, windows, embedding) -> rates (models, windows, steps, 4), sums to one."""
        steps, last = self.settings.steps, self._before_modes(z)
        if self._fast:
            flat = _product(last, self._modes).float().view(self.models, -1, self.settings.padded_steps, len(MODES))
            return flat[:, :, :steps]
        return softmax_modes(last, self._last, steps)

    def error(self, z: Tensor, rates: Tensor) -> Tensor:
        """Z and the rates (windows, steps, 4) that it was made of -> mean squared difference (models, windows)."""
        last = self._before_modes(z)
        if self._fast:
            if self._kernels is None:
                return linear_error(_product(last, self._modes).view(self.models, len(rates), -1), rates)
            back = torch.bmm(last, self._modes.weight).view(self.models, len(rates), -1)  # (models, windows, padded steps × 4)
            return self._kernels.linear_error(back, self._modes.bias, rates)
        if self._kernels:
            return self._kernels.softmax_error(last, self._last, rates)
        return linear_error(softmax_modes(last, self._last, self.settings.steps).flatten(2), rates)

    def _bent(self, layer: Linear, x: Tensor) -> Tensor:
        """A linear layer, and its units: (models, rows, inside) -> (models, rows, outside)."""
        slope = LEAK if self._fast else 0.0
        if self._kernels:
            return self._kernels.bend(torch.bmm(x, layer.weight), layer.bias, slope)
        return functional.leaky_relu_(_product(x, layer), slope)

    def _before_modes(self, z: Tensor) -> Tensor:
        x = self._bent(self._flat, self._bent(self._decoder_hidden, z.to(self._dtype)))  # (models, windows, flat)
        if self._fast:
            return x.view(self.models, -1, self.settings.channels[0])  # (models, windows × patches, values)
        x = x.view(self.models, z.shape[1], self.settings.innermost_steps, self.settings.channels[-1])
        for block in self._decoder_blocks:
            x = (self._kernels or _PLAIN).decoder_block(x, block)
        return x  # (models, windows, padded steps, channels)

    # The convolutional networks.

    def _take_convolutions(self, stacked: Weights) -> None:
        settings = self.settings
        blocks = range(len(settings.channels))
        self._encoder_blocks = [self._convolution(stacked, f"encoder.blocks.{number}") for number in blocks]
        self._decoder_blocks = [self._convolution(stacked, f"decoder.blocks.{number}", doubled=True) for number in blocks]
        self._last = self._convolution(stacked, "decoder", name="modes")
        channels, inner = settings.channels[-1], settings.innermost_steps
        # Here windows are (steps, channels) when they are flattened; the weights know them as (channels, steps).
        order = torch.arange(settings.flat).view(channels, inner).t().flatten().to(self.device)
        self._hidden = self._linear(stacked, "encoder.hidden", inside=order)
        self._embedding = self._linear(stacked, "encoder.embedding")
        self._decoder_hidden = self._linear(stacked, "decoder.hidden")
        self._flat = self._linear(stacked, "decoder.flat", outside=order)

    def _encoded_blocks(self, rates: Tensor) -> Tensor:
        x = rates[None]  # (1, windows, steps, 4); all models see the same
        for block in self._encoder_blocks:
            x = (self._kernels or _PLAIN).encoder_block(x, block, self._dtype, steps=self._padded(x))
        return x.flatten(2)

    def _padded(self, x: Tensor) -> int:
        return self.settings.padded_steps if x.shape[2] == self.settings.steps else x.shape[2]

    def _convolution(self, stacked: Weights, part: str, *, name: str = "convolution", doubled: bool = False) -> Convolution:
        taps = stacked[f"{part}.{name}.weight"].permute(0, 3, 2, 1)  # (models, kernel, inside, outside)
        residual = stacked.get(f"{part}.residual.weight")
        shared, first = _doubled_taps(taps) if doubled else (None, 0)
        return Convolution(
            taps=self._as_input(taps),
            bias=stacked[f"{part}.{name}.bias"].contiguous(),
            residual=None if residual is None else self._as_input(residual[..., 0].transpose(1, 2)),
            residual_bias=stacked.get(f"{part}.residual.bias"),
            doubled=None if shared is None else self._as_input(shared),
            first_offset=first,
        )

    # The network of patches.

    def _take_patches(self, stacked: Weights) -> None:
        settings, models = self.settings, self.models
        values, inputs = settings.channels[0], PATCH_STEPS * len(MODES)
        # `other` goes in with weights of zero, and comes back as one less the modes: no copy of three of four numbers.
        patch = stacked["encoder.patch.weight"].view(models, values, PATCH_STEPS, INPUT_MODES)
        modes = stacked["decoder.modes.weight"].view(models, PATCH_STEPS, INPUT_MODES, values)
        bias = stacked["decoder.modes.bias"].view(models, PATCH_STEPS, INPUT_MODES)
        whole = {
            **stacked,
            "encoder.patch.weight": functional.pad(patch, (0, 1)).reshape(models, values, inputs),
            "decoder.modes.weight": torch.cat([modes, -modes.sum(2, keepdim=True)], dim=2).view(models, inputs, values),
            "decoder.modes.bias": torch.cat([bias, 1 - bias.sum(2, keepdim=True)], dim=2).view(models, inputs),
        }
        self._patch = self._linear(whole, "encoder.patch")
        self._hidden, self._embedding = self._linear(whole, "encoder.hidden"), self._linear(whole, "encoder.embedding")
        self._decoder_hidden, self._flat = self._linear(whole, "decoder.hidden"), self._linear(whole, "decoder.flat")
        self._modes = self._linear(whole, "decoder.modes")

    def _encoded_patches(self, rates: Tensor) -> Tensor:
        fill = self.settings.padded_steps - self.settings.steps
        x = rates.to(self._dtype)
        if fill:
            x = torch.cat([x, x[:, -1:].expand(-1, fill, -1)], dim=1)
        x = x.reshape(1, -1, PATCH_STEPS * len(MODES)).expand(self.models, -1, -1)  # (models, windows × patches, steps × 4)
        return self._bent(self._patch, x).view(self.models, len(rates), -1)

    def _linear(self, stacked: Weights, name: str, *, inside: Tensor | None = None, outside: Tensor | None = None) -> Linear:
        weight, bias = stacked[f"{name}.weight"], stacked[f"{name}.bias"]  # (models, outside, inside)
        weight = weight if inside is None else weight[:, :, inside]
        if outside is not None:
            weight, bias = weight[:, outside], bias[:, outside]
        return Linear(self._as_input(weight.transpose(1, 2)), self._as_input(bias[:, None]))

    def _as_input(self, weight: Tensor) -> Tensor:
        return weight.to(self._dtype).contiguous()


def has_kernels() -> bool:
    """Whether the convolutions can be compiled for a GPU here."""
    return find_spec("triton") is not None


def _kernels(device: torch.device) -> ModuleType | None:
    if device.type != "cuda" or not has_kernels():
        return None
    from stormpetrel.traces.networks import stacked_kernels

    return stacked_kernels


def _product(x: Tensor, layer: Linear) -> Tensor:
    """(models, rows, inside) -> (models, rows, outside)."""
    return torch.baddbmm(layer.bias, x, layer.weight)


def _doubled_taps(taps: Tensor) -> tuple[Tensor, int]:
    """The kernel (models, kernel, inside, outside) as it meets an input whose steps all come twice: fewer, summed matrices.

    The even and the odd step of each pair see the same steps of the input: (models, 2, offsets, inside, outside), and the first.
    """
    models, kernel, inside, outside = taps.shape
    half = kernel // 2
    first, last = -half // 2, (half + 1) // 2
    shared = taps.new_zeros(models, 2, last - first + 1, inside, outside)
    for parity in range(2):
        for place in range(kernel):
            shared[:, parity, (parity + place - half) // 2 - first] += taps[:, place]
    return shared, first


class _PlainLayers:
    """The layers of the convolutional networks in torch alone; the same functions, compiled, are in `stacked_kernels`."""

    @staticmethod
    def encoder_block(x: Tensor, block: Convolution, dtype: torch.dtype, *, steps: int) -> Tensor:
        """(models or 1, windows, seen, channels) -> (models, windows, steps / 2, outside); the last step seen is repeated."""
        inside = block.taps.shape[2]
        x = x[..., :inside].to(dtype)
        if steps != x.shape[2]:
            x = torch.cat([x, x[:, :, -1:].expand(-1, -1, steps - x.shape[2], -1)], dim=2)
        x = x.expand(len(block.taps), -1, -1, -1)
        x = _relu_and_residual(x, block)
        return x.unflatten(2, (-1, 2)).amax(3)

    @staticmethod
    def decoder_block(x: Tensor, block: Convolution) -> Tensor:
        """(models, windows, steps, inside) -> (models, windows, 2 × steps, outside)."""
        twice = x.unsqueeze(3).expand(-1, -1, -1, 2, -1).flatten(2, 3)
        return _relu_and_residual(twice, block)


_PLAIN: Final = _PlainLayers()


def _relu_and_residual(x: Tensor, block: Convolution) -> Tensor:
    convolved = functional.relu_(_convolved(x, block.taps, block.bias))
    if block.residual is None:
        return convolved + x
    assert block.residual_bias is not None
    return convolved + _convolved(x, block.residual[:, None], block.residual_bias)


def _convolved(x: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
    """(models, windows, steps, inside) -> (models, windows, steps, outside): one product of all places of the kernel."""
    models, kernel, inside, outside = taps.shape
    half = kernel // 2
    seen = functional.pad(x, (0, 0, half, half)).unfold(2, kernel, 1)  # (models, windows, steps, inside, kernel)
    weight = taps.transpose(1, 2).reshape(models, inside * kernel, outside)
    product = torch.baddbmm(bias[:, None].to(x.dtype), seen.reshape(models, -1, inside * kernel), weight)
    return product.view(*x.shape[:3], outside)


def softmax_modes(x: Tensor, last: Convolution, steps: int) -> Tensor:
    """(models, windows, padded steps, channels) -> shares of the modes (models, windows, steps, 4)."""
    return functional.softmax(_convolved(x, last.taps, last.bias).float(), dim=3)[:, :, :steps]


def linear_error(back: Tensor, rates: Tensor) -> Tensor:
    """(models, windows, numbers or more) and rates (windows, steps, 4) -> mean squared difference (models, windows)."""
    flat = rates.flatten(1)  # (windows, numbers)
    return (back[:, :, : flat.shape[1]].float() - flat).square_().mean(dim=2)
