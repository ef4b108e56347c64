"""Convolutions of stacked networks for a GPU, compiled by Triton: the same functions as the plain ones in `stacked`.

x (models, windows, steps, channels), in 16 or 32 bits -> the same after a block; the last one ends in the score. A block reads
its input once and writes only its result: convolution, residual, and the larger of each two steps (or each step twice) happen on
the chip. The last one needs no memory for what comes back: softmax, difference and sum are one with the convolution before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from stormpetrel.traces.networks.stacked import Convolution

LAUNCH: Final = {  # steps (or rows) per program, and warps: what was fastest for the networks of default size on an H200
    "first": (128, 4),
    "encoder": (64, 4),
    "decoder": (128, 8),
    "score": (128, 4),
    "bend": (16, 4),
}
_SMALLEST: Final = 16  # side of a matrix that the units take
_MODES: Final = 4
_ROUNDING: Final = {torch.float32: "tf32x3", torch.float16: "ieee"}  # 32 bits as a sum of three products of fewer: 1e-6 apart
_NUMBERS_AT_ONCE: Final = 512
_PACKED: Final = 64  # inputs of all places of a kernel that one matrix may have


def encoder_block(x: Tensor, block: Convolution, dtype: torch.dtype, *, steps: int) -> Tensor:
    """(models or 1, windows, seen, channels) -> (models, windows, steps / 2, outside); the last step seen is repeated."""
    models, kernel, inside, outside = block.taps.shape
    windows, seen, wide = x.shape[1:]
    result = torch.empty((models, windows, steps // 2, outside), dtype=dtype, device=x.device)
    rows = windows * (steps // 2)
    packed = block.residual is not None and kernel * inside <= _PACKED
    at_once, warps = LAUNCH["first" if packed else "encoder"]
    shape = {**_sizes(inside, outside), "KERNEL": kernel, "ROWS": at_once, "ROUNDING": _ROUNDING[dtype], "num_warps": warps}
    begins = (rows, steps, seen, x.stride(0) if x.shape[0] > 1 else 0, wide)
    grid = (triton.cdiv(rows, at_once), models)
    if packed:
        shape["INSIDE_WIDE"] = _wide(kernel * inside)
        _first_block[grid](x, block.taps, block.bias, block.residual, block.residual_bias, result, *begins, **shape)
    else:
        _encoder_block[grid](x, *_weights(block), result, *begins, **shape, HAS_RESIDUAL=block.residual is not None)
    return result


def decoder_block(x: Tensor, block: Convolution) -> Tensor:
    """(models, windows, steps, inside) -> (models, windows, 2 × steps, outside)."""
    assert block.doubled is not None
    models, windows, steps, inside = x.shape
    outside = block.taps.shape[3]
    result = torch.empty((models, windows, 2 * steps, outside), dtype=x.dtype, device=x.device)
    rows = windows * steps
    at_once, warps = LAUNCH["decoder"]
    _, *others = _weights(block)
    _decoder_block[(triton.cdiv(rows, at_once), models)](
        x.contiguous(),
        block.doubled,
        *others,
        result,
        rows,
        steps,
        **_sizes(inside, outside),
        OFFSETS=block.doubled.shape[2],
        FIRST=block.first_offset,
        HAS_RESIDUAL=block.residual is not None,
        ROWS=at_once,
        ROUNDING=_ROUNDING[x.dtype],
        num_warps=warps,
    )
    return result


def softmax_error(x: Tensor, last: Convolution, rates: Tensor) -> Tensor:
    """(models, windows, padded steps, channels) and rates (windows, steps, 4) -> mean squared difference (models, windows)."""
    models, windows, padded, inside = x.shape
    error = torch.empty((models, windows), dtype=torch.float32, device=x.device)
    at_once, warps = LAUNCH["score"]
    _softmax_error[(windows, models)](
        x.contiguous(),
        last.taps,
        last.bias,
        rates.contiguous(),
        error,
        windows,
        padded,
        STEPS=rates.shape[1],
        INSIDE=inside,
        INSIDE_WIDE=_wide(inside),
        OUTSIDE_WIDE=_SMALLEST,
        KERNEL=last.taps.shape[1],
        ROWS=at_once,
        ROUNDING=_ROUNDING[x.dtype],
        num_warps=warps,
    )
    return error


def linear_error(back: Tensor, bias: Tensor, rates: Tensor) -> Tensor:
    """(models, windows, numbers or more), a bias that comes again and again, and rates -> mean squared difference.

    `bias` is (models, 1, some), `rates` (windows, steps, 4), and the result (models, windows).
    """
    models, windows, wide = back.shape
    numbers = rates.shape[1] * _MODES
    error = torch.empty((models, windows), dtype=torch.float32, device=back.device)
    _linear_error[(windows, models)](
        back, bias, rates.contiguous(), error, windows, wide, PERIOD=bias.shape[2], NUMBERS=numbers, AT_ONCE=_NUMBERS_AT_ONCE
    )
    return error


def bend(x: Tensor, bias: Tensor, slope: float) -> Tensor:
    """Add a bias (models, 1, outside) to x (models, rows, outside), and multiply what is below zero by the slope; in place."""
    models, rows, outside = x.shape
    at_once, warps = LAUNCH["bend"]
    wide = min(_wide(outside), _NUMBERS_AT_ONCE)
    grid = (triton.cdiv(rows, at_once), triton.cdiv(outside, wide), models)
    _bend[grid](x, bias, rows, outside, slope, ROWS=at_once, WIDE=wide, num_warps=warps)
    return x


def _weights(block: Convolution) -> tuple[Tensor, ...]:
    """Its tensors; what it has not is not read, and another stands there."""
    residual = block.taps if block.residual is None else block.residual
    return block.taps, block.bias, residual, block.bias if block.residual_bias is None else block.residual_bias


def _sizes(inside: int, outside: int) -> dict[str, Any]:
    return {"INSIDE": inside, "OUTSIDE": outside, "INSIDE_WIDE": _wide(inside), "OUTSIDE_WIDE": _wide(outside)}


def _wide(channels: int) -> int:
    return max(_SMALLEST, 1 << (channels - 1).bit_length())


@triton.jit
def _matrix(start, inside, outside, INSIDE: tl.constexpr, OUTSIDE: tl.constexpr):
    """A matrix of weights, filled up with zeros: (inside, outside)."""
    fits = (inside[:, None] < INSIDE) & (outside[None, :] < OUTSIDE)
    return tl.load(start + inside[:, None] * OUTSIDE + outside[None, :], mask=fits, other=0.0)


@triton.jit
def _steps_of(x, first, step, ok, seen, wide, inside, taps, INSIDE: tl.constexpr):
    """The numbers of a step of each row: (rows, inside); zero where there is no such step."""
    at = first + tl.minimum(step, seen - 1)
    fits = ok[:, None] & (inside[None, :] < INSIDE)
    return tl.load(x + at[:, None] * wide + inside[None, :], mask=fits, other=0.0).to(taps.dtype.element_ty)


@triton.jit
def _encoder_block(
    x, taps, bias, residual, residual_bias, result, rows, steps, seen, model_stride, wide,
    INSIDE: tl.constexpr, OUTSIDE: tl.constexpr, INSIDE_WIDE: tl.constexpr, OUTSIDE_WIDE: tl.constexpr,
    KERNEL: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ROWS: tl.constexpr, ROUNDING: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    step, first = 2 * (row % (steps // 2)), (row // (steps // 2)) * seen
    inside, outside = tl.arange(0, INSIDE_WIDE), tl.arange(0, OUTSIDE_WIDE)
    x += model * model_stride
    taps += model * KERNEL * INSIDE * OUTSIDE
    offset = tl.load(bias + model * OUTSIDE + outside, mask=outside < OUTSIDE, other=0.0)
    largest = tl.full((ROWS, OUTSIDE_WIDE), float("-inf"), tl.float32)
    for parity in tl.static_range(2):
        total = tl.zeros((ROWS, OUTSIDE_WIDE), tl.float32) + offset[None, :]
        for place in tl.static_range(KERNEL):
            at = step + (parity + place - KERNEL // 2)
            ok = (row < rows) & (at >= 0) & (at < steps)
            values = _steps_of(x, first, at, ok, seen, wide, inside, taps, INSIDE)
            total = tl.dot(
                values,
                _matrix(taps + place * INSIDE * OUTSIDE, inside, outside, INSIDE, OUTSIDE),
                total,
                input_precision=ROUNDING,
            )
        total = tl.maximum(total, 0.0)
        if HAS_RESIDUAL:
            values = _steps_of(x, first, step + parity, row < rows, seen, wide, inside, taps, INSIDE)
            total = tl.dot(
                values,
                _matrix(residual + model * INSIDE * OUTSIDE, inside, outside, INSIDE, OUTSIDE),
                total,
                input_precision=ROUNDING,
            )
            total += tl.load(residual_bias + model * OUTSIDE + outside, mask=outside < OUTSIDE, other=0.0)[None, :]
        else:
            total += _steps_of(x, first, step + parity, row < rows, seen, wide, outside, taps, OUTSIDE)
        largest = tl.maximum(largest, total)
    to = result + (model * rows + row)[:, None] * OUTSIDE + outside[None, :]
    tl.store(to, largest.to(result.dtype.element_ty), mask=(row < rows)[:, None] & (outside < OUTSIDE)[None, :])


@triton.jit
def _decoder_block(
    x, taps, bias, residual, residual_bias, result, rows, steps,
    INSIDE: tl.constexpr, OUTSIDE: tl.constexpr, INSIDE_WIDE: tl.constexpr, OUTSIDE_WIDE: tl.constexpr,
    OFFSETS: tl.constexpr, FIRST: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ROWS: tl.constexpr, ROUNDING: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    step = row % steps
    inside, outside = tl.arange(0, INSIDE_WIDE), tl.arange(0, OUTSIDE_WIDE)
    x += model * rows * INSIDE
    taps += model * 2 * OFFSETS * INSIDE * OUTSIDE
    offset = tl.load(bias + model * OUTSIDE + outside, mask=outside < OUTSIDE, other=0.0)
    for parity in tl.static_range(2):
        total = tl.zeros((ROWS, OUTSIDE_WIDE), tl.float32) + offset[None, :]
        for place in tl.static_range(OFFSETS):
            at = step + (FIRST + place)
            ok = (row < rows) & (at >= 0) & (at < steps)
            values = _steps_of(x, row - step, at, ok, steps, INSIDE, inside, taps, INSIDE)
            matrix = _matrix(taps + (parity * OFFSETS + place) * INSIDE * OUTSIDE, inside, outside, INSIDE, OUTSIDE)
            total = tl.dot(values, matrix, total, input_precision=ROUNDING)
        total = tl.maximum(total, 0.0)
        if HAS_RESIDUAL:
            values = _steps_of(x, row - step, step, row < rows, steps, INSIDE, inside, taps, INSIDE)
            total = tl.dot(
                values,
                _matrix(residual + model * INSIDE * OUTSIDE, inside, outside, INSIDE, OUTSIDE),
                total,
                input_precision=ROUNDING,
            )
            total += tl.load(residual_bias + model * OUTSIDE + outside, mask=outside < OUTSIDE, other=0.0)[None, :]
        else:
            total += _steps_of(x, row - step, step, row < rows, steps, OUTSIDE, outside, taps, OUTSIDE)
        to = result + (2 * (model * rows + row) + parity)[:, None] * OUTSIDE + outside[None, :]
        tl.store(to, total.to(result.dtype.element_ty), mask=(row < rows)[:, None] & (outside < OUTSIDE)[None, :])


@triton.jit
def _softmax_error(
    x, taps, bias, rates, error, windows, padded,
    STEPS: tl.constexpr, INSIDE: tl.constexpr, INSIDE_WIDE: tl.constexpr, OUTSIDE_WIDE: tl.constexpr,
    KERNEL: tl.constexpr, ROWS: tl.constexpr, ROUNDING: tl.constexpr,
):  # fmt: skip
    window, model = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    inside, outside = tl.arange(0, INSIDE_WIDE), tl.arange(0, OUTSIDE_WIDE)
    taps += model * KERNEL * INSIDE * 4
    offset = tl.load(bias + model * 4 + outside, mask=outside < 4, other=float("-inf"))
    sum_of_squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, STEPS, ROWS):
        step = start + tl.arange(0, ROWS)
        total = tl.zeros((ROWS, OUTSIDE_WIDE), tl.float32) + offset[None, :]
        for place in tl.static_range(KERNEL):
            at = step + (place - KERNEL // 2)
            ok = (at >= 0) & (at < padded)
            values = _steps_of(x, (model * windows + window) * padded, at, ok, padded, INSIDE, inside, taps, INSIDE)
            total = tl.dot(
                values, _matrix(taps + place * INSIDE * 4, inside, outside, INSIDE, 4), total, input_precision=ROUNDING
            )
        shares = tl.exp(total - tl.max(total, axis=1)[:, None])
        shares /= tl.sum(shares, axis=1)[:, None]
        fits = (step < STEPS)[:, None] & (outside < 4)[None, :]
        seen = tl.load(rates + (window * STEPS + step)[:, None] * 4 + outside[None, :], mask=fits, other=0.0)
        difference = tl.where(fits, shares - seen, 0.0)
        sum_of_squares += tl.sum(difference * difference, axis=1)
    tl.store(error + model * windows + window, tl.sum(sum_of_squares, axis=0) / (4 * STEPS))


@triton.jit
def _first_block(
    x, taps, bias, residual, residual_bias, result, rows, steps, seen, model_stride, wide,
    INSIDE: tl.constexpr, OUTSIDE: tl.constexpr, INSIDE_WIDE: tl.constexpr, OUTSIDE_WIDE: tl.constexpr,
    KERNEL: tl.constexpr, ROWS: tl.constexpr, ROUNDING: tl.constexpr,
):  # fmt: skip
    """The same as `_encoder_block` for few inputs: all places of the kernel side by side in one matrix."""
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    step, first = 2 * (row % (steps // 2)), (row // (steps // 2)) * seen
    number, outside = tl.arange(0, INSIDE_WIDE), tl.arange(0, OUTSIDE_WIDE)  # place of the kernel × input
    place = number // INSIDE
    weights = _matrix(taps + model * KERNEL * INSIDE * OUTSIDE, number, outside, KERNEL * INSIDE, OUTSIDE)
    in_middle = (place == KERNEL // 2)[:, None] & (outside < OUTSIDE)[None, :]
    at_residual = (number - (KERNEL // 2) * INSIDE)[:, None] * OUTSIDE + outside[None, :]
    shortcut = tl.load(residual + model * INSIDE * OUTSIDE + at_residual, mask=in_middle, other=0.0)
    offset = tl.load(bias + model * OUTSIDE + outside, mask=outside < OUTSIDE, other=0.0)
    more = tl.load(residual_bias + model * OUTSIDE + outside, mask=outside < OUTSIDE, other=0.0)
    largest = tl.full((ROWS, OUTSIDE_WIDE), float("-inf"), tl.float32)
    for parity in tl.static_range(2):
        at = step[:, None] + (parity - KERNEL // 2) + place[None, :]
        ok = (row < rows)[:, None] & (at >= 0) & (at < steps) & (number < KERNEL * INSIDE)[None, :]
        source = x + model * model_stride + (first[:, None] + tl.minimum(at, seen - 1)) * wide + (number % INSIDE)[None, :]
        values = tl.load(source, mask=ok, other=0.0).to(taps.dtype.element_ty)
        total = tl.zeros((ROWS, OUTSIDE_WIDE), tl.float32) + offset[None, :]
        total = tl.maximum(tl.dot(values, weights, total, input_precision=ROUNDING), 0.0)
        largest = tl.maximum(largest, tl.dot(values, shortcut, total + more[None, :], input_precision=ROUNDING))
    to = result + (model * rows + row)[:, None] * OUTSIDE + outside[None, :]
    tl.store(to, largest.to(result.dtype.element_ty), mask=(row < rows)[:, None] & (outside < OUTSIDE)[None, :])


@triton.jit
def _linear_error(
    back, bias, rates, error, windows, wide, PERIOD: tl.constexpr, NUMBERS: tl.constexpr, AT_ONCE: tl.constexpr
):  # fmt: skip
    window, model = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    sum_of_squares = tl.zeros((AT_ONCE,), tl.float32)
    for start in range(0, NUMBERS, AT_ONCE):
        number = start + tl.arange(0, AT_ONCE)
        fits = number < NUMBERS
        answer = tl.load(back + (model * windows + window) * wide + number, mask=fits, other=0.0).to(tl.float32)
        answer += tl.load(bias + model * PERIOD + number % PERIOD, mask=fits, other=0.0).to(tl.float32)
        difference = answer - tl.load(rates + window * NUMBERS + number, mask=fits, other=0.0)
        sum_of_squares += difference * difference
    tl.store(error + model * windows + window, tl.sum(sum_of_squares, axis=0) / NUMBERS)


@triton.jit
def _bend(x, bias, rows, outside, slope, ROWS: tl.constexpr, WIDE: tl.constexpr):
    model = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    fits = (row < rows)[:, None] & (column < outside)[None, :]
    at = x + (model * rows + row)[:, None] * outside + column[None, :]
    values = tl.load(at, mask=fits, other=0.0).to(tl.float32)
    values += tl.load(bias + model * outside + column, mask=column < outside, other=0.0).to(tl.float32)[None, :]
    tl.store(at, tl.where(values < 0, values * slope, values).to(x.dtype.element_ty), mask=fits)
