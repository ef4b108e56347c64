"""The variational autoencoder of rows: encoder and decoder trained together, the decoder kept.

Encoded rows -> train_vae -> Decoder -> draw_decoded -> Encoded rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Adam

from stormpetrel.synth.rows.gan_training import Training
from stormpetrel.synth.rows.networks import Perceptron, RowLook, as_codes, device_named, seeded
from stormpetrel.synth.rows.table_encoding import Encoded

LATENT: Final = 128
_LOSS_FACTOR: Final = 2.0  # of the reconstruction against the divergence, as in the paper
_NARROWEST, _WIDEST = 0.01, 1.0  # standard deviation of a place


class Decoder(nn.Module):
    """Noise -> raw outputs of a row, and how far the places of the numbers scatter around them."""

    def __init__(self, look: RowLook) -> None:
        super().__init__()
        self.layers = Perceptron(LATENT, look.width)
        self.scatter = nn.Parameter(torch.full((look.numbers,), 0.1))

    def forward(self, noise: Tensor) -> Tensor:
        """(batch, LATENT) -> (batch, width)."""
        raw: Tensor = self.layers(noise)
        return raw

    def spread(self) -> Tensor:
        """(numbers,) standard deviations of the places."""
        return self.scatter.clamp(_NARROWEST, _WIDEST)


def train_vae(rows: Encoded, look: RowLook, training: Training) -> Decoder:
    """A decoder of rows like these."""
    device = device_named(training.device)
    rng = np.random.default_rng(training.seed)
    with seeded(training.seed, device):
        encoder, decoder = Perceptron(look.width, 2 * LATENT).to(device), Decoder(look).to(device)
        optimiser = Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3, weight_decay=1e-5)
        for epoch in range(training.epochs):
            order = rng.permutation(len(rows.modes))
            for first in range(0, len(order), training.batch_size):
                drawn = order[first : first + training.batch_size]
                loss = _loss(encoder, decoder, look, Encoded(rows.places[drawn], rows.modes[drawn]), device)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
            training.told(epoch + 1)
    return decoder.eval()


def draw_decoded(decoder: Decoder, look: RowLook, count: int, rng: np.random.Generator) -> Encoded:
    """New rows: places scatter as they did in training, modes are drawn by their probability."""
    device = decoder.scatter.device
    with torch.inference_mode():
        raw = decoder(torch.as_tensor(rng.standard_normal((count, LATENT), dtype=np.float32), device=device))
        spread = decoder.spread().cpu().numpy()
    rows = look.choose(raw, rng)
    scattered = rows.places + spread * rng.standard_normal(rows.places.shape)
    return Encoded(np.clip(scattered, -1, 1).astype(np.float32), rows.modes)


def _loss(encoder: Perceptron, decoder: Decoder, look: RowLook, rows: Encoded, device: torch.device) -> Tensor:
    """Reconstruction, weighed, and divergence of the latent from the normal, both per row."""
    real = look.as_tensor(rows, device)
    middle, log_variance = encoder(real).chunk(2, dim=1)  # (batch, LATENT) each
    raw = decoder(middle + torch.exp(log_variance / 2) * torch.randn_like(middle))
    spread = decoder.spread()
    away = (real[:, : look.numbers] - torch.tanh(raw[:, : look.numbers])) / spread
    lost = (away.square() / 2 + torch.log(spread)).sum()
    for place, block in enumerate(look.blocks(raw)):
        lost = lost + functional.cross_entropy(block, as_codes(rows.modes[:, place], device), reduction="sum")
    divergence = -0.5 * (1 + log_variance - middle.square() - log_variance.exp()).sum()
    loss: Tensor = (_LOSS_FACTOR * lost + divergence) / len(real)
    return loss
