"""The runtime: scores windows by a saved autoencoder, without torch.

folder -> TraceScorer.load -> embed, reconstruct, score. Encoder and decoder run in ONNX Runtime, the message passing between them
in compiled loops. Windows go through in portions: beside the embeddings, nothing that grows with their number is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.learn.saving import load_model_bytes
from stormpetrel.learn.threads import threads as all_threads
from stormpetrel.records.windows import Windows
from stormpetrel.traces.architecture import (
    DECODER,
    ENCODER,
    FORMAT_VERSION,
    KIND,
    WEIGHTS,
    Architecture,
    AutoencoderSettings,
    check_shape,
    graph_numbers,
)
from stormpetrel.traces.onnx_files import EMBEDDING, RATES, check_graph, write_decoder, write_encoder

if TYPE_CHECKING:
    from stormpetrel.traces.message_kernel import MessageKernel

AT_ONCE: Final = 64  # windows per portion: their activations stay in the cache
_AGAIN: Final = "Train it again: stormpetrel traces train"

Array = npt.NDArray[np.float32]


class TraceScorer:
    """A saved autoencoder that scores; made once and kept, it may be used by several threads at once.

    The two sessions of ONNX Runtime are all that it holds: they end with it, and no call makes another.
    """

    def __init__(self, settings: AutoencoderSettings, encoder: Session, decoder: Session, messages: MessageKernel | None) -> None:
        self.settings = settings
        self._encoder, self._decoder, self._messages = encoder, decoder, messages

    @classmethod
    def load(cls, folder: Path, *, threads: int | None = None) -> Self:
        """Read an autoencoder from its folder; `threads` is how many cores a call may use (all of this process by default).

        ONNX Runtime is shown graphs that are written here from the weights, never those of the folder: what a file makes of
        sizes and places would be believed. Those of the folder, which are for other programs, must be the same.
        """
        if any(find_spec(name) is None for name in ("onnxruntime", "onnx", "safetensors")):
            raise MissingExtraError("Scoring CPU traces", "scoring")
        from safetensors import SafetensorError
        from safetensors.numpy import load

        record, files = load_model_bytes(folder, kind=KIND, format_version=FORMAT_VERSION)
        try:
            settings = AutoencoderSettings.of_record(record["settings"])
            weights = load(files[WEIGHTS])
            scorer = cls.of_weights(settings, weights, files, threads=threads)
        except (ModelError, SafetensorError, LookupError, TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"The model in {folder} is damaged: {str(error)[:200]}", hint=_AGAIN) from None
        return scorer

    @classmethod
    def of_weights(
        cls,
        settings: AutoencoderSettings,
        weights: Mapping[str, Array],
        files: Mapping[str, bytes],
        *,
        threads: int | None = None,
    ) -> Self:
        """A scorer from what a model folder holds, checked and tried on one window."""
        encoder, decoder = write_encoder(settings, weights), write_decoder(settings, weights)
        for name, written in ((ENCODER, encoder), (DECODER, decoder)):
            if name in files:
                check_graph(files[name], settings, written=written, decoder=name == DECODER)
        messages = _message_kernel(settings, weights)
        scorer = cls(settings, Session(encoder, threads=threads), Session(decoder, threads=threads), messages)
        scorer._try()
        return scorer

    def embed(self, windows: Windows) -> Array:
        """A place in the space of embeddings for each window, after message passing: (windows, embedding)."""
        return self._embedded(windows, self._rates(windows))

    def reconstruct(self, windows: Windows) -> Array:
        """Each window as it comes back from its embedding: (windows, steps, 4), sums to one."""
        rates = self._rates(windows)
        z, answer = self._embedded(windows, rates), np.empty_like(rates)
        for rows in _portions(len(z)):
            answer[rows] = self._decoder.run(EMBEDDING, z[rows])
        return answer

    def score(self, windows: Windows) -> npt.NDArray[np.float64]:
        """The reconstruction error: mean over steps and the four modes of the squared difference; higher is more abnormal."""
        return self.embed_and_score(windows)[1]

    def embed_and_score(self, windows: Windows) -> tuple[Array, npt.NDArray[np.float64]]:
        """Both at once, for what the embedding alone costs twice."""
        rates = self._rates(windows)
        z, scores = self._embedded(windows, rates), np.empty(len(rates), dtype=np.float64)
        for rows in _portions(len(z)):
            difference = self._decoder.run(EMBEDDING, z[rows]) - rates[rows]  # (portion, steps, 4)
            flat = difference.reshape(len(difference), -1)
            scores[rows] = np.einsum("ij,ij->i", flat, flat) / flat.shape[1]
        return z, scores

    def _embedded(self, windows: Windows, rates: Array) -> Array:
        z = np.empty((len(rates), self.settings.embedding), dtype=np.float32)
        for rows in _portions(len(rates)):
            z[rows] = self._encoder.run(RATES, rates[rows])
        numbers = graph_numbers(windows, self.settings.architecture)
        return z if self._messages is None or numbers is None else self._messages(z, numbers)

    def _rates(self, windows: Windows) -> Array:
        check_shape(self.settings, windows)
        return np.ascontiguousarray(windows.rates, dtype=np.float32)  # (windows, steps, 4)

    def _try(self) -> None:
        """ModelFormatError where the graphs do not do what they promise."""
        idle = np.zeros((1, self.settings.steps, 4), dtype=np.float32)
        idle[..., -1] = 1
        z = self._encoder.run(RATES, idle)
        rates = self._decoder.run(EMBEDDING, z)
        if z.shape != (1, self.settings.embedding) or rates.shape != idle.shape or not np.isfinite(rates).all():
            raise ModelFormatError("Its graphs give something else than embeddings and rates.")


class Session:
    """One graph in ONNX Runtime: one input, one output."""

    def __init__(self, graph: bytes, *, threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or all_threads()
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised, and said once
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads sleep
        try:
            self._session: Any = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's own errors have no common class but this
            raise ModelFormatError(f"ONNX Runtime refuses a graph: {_first_line(error)}") from None

    def run(self, name: str, value: Array) -> Array:
        """What the graph gives for its input of this name."""
        try:
            (answer,) = self._session.run(None, {name: value})
        except Exception as error:  # as above
            raise ModelFormatError(f"A graph of the model fails: {_first_line(error)}") from None
        result: Array = answer
        return result


def _message_kernel(settings: AutoencoderSettings, weights: Mapping[str, Array]) -> MessageKernel | None:
    if settings.architecture is Architecture.VANILLA:
        return None
    from stormpetrel.traces.message_kernel import MessageKernel

    return MessageKernel.of_weights(settings.embedding, weights)


def _portions(windows: int) -> Iterator[slice]:
    return (slice(start, start + AT_ONCE) for start in range(0, windows, AT_ONCE))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
