"""The runtime: scores windows by a saved autoencoder, without torch.

folder -> TraceScorer.load -> embed, reconstruct, score. Encoder and decoder run in ONNX Runtime, the message passing between them
in compiled loops; `fast` has one graph for all of it, the score included. Windows go through in portions: apart from the
embeddings, nothing that grows with their number is held.
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
from stormpetrel.traces.networks.architecture import (
    DECODER,
    ENCODER,
    FORMAT_VERSION,
    KIND,
    SCORE,
    WEIGHTS,
    AutoencoderSettings,
    check_shape,
    graph_numbers,
)
from stormpetrel.traces.networks.onnx_files import EMBEDDING, RATES, check_graph, write_graphs

if TYPE_CHECKING:
    from stormpetrel.traces.networks.message_kernel import MessageKernel

AT_ONCE: Final = 64  # windows per portion: their activations stay in the cache
FAST_AT_ONCE: Final = 256  # of `fast`, whose windows need less; measured by benchmarks.traces
_AGAIN: Final = "Train it again: stormpetrel traces train"

Array = npt.NDArray[np.float32]


class TraceScorer:
    """A saved autoencoder that scores; made once and kept, it may be used by several threads at once.

    The sessions of ONNX Runtime are all that it holds: they end with it, and no call makes another.
    """

    def __init__(
        self,
        settings: AutoencoderSettings,
        encoder: Session,
        decoder: Session,
        messages: MessageKernel | None,
        whole: Session | None = None,
    ) -> None:
        self.settings = settings
        self._encoder, self._decoder, self._messages = encoder, decoder, messages
        self._whole = whole  # rates -> z and error, of `fast`

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
        graphs = write_graphs(settings, weights)
        for name, written in graphs.items():
            if name in files:
                check_graph(files[name], settings, written=written, part=name)
        messages = _message_kernel(settings, weights)
        sessions = {name: Session(graph, threads=threads) for name, graph in graphs.items()}
        scorer = cls(settings, sessions[ENCODER], sessions[DECODER], messages, sessions.get(SCORE))
        scorer._try()
        return scorer

    @property
    def is_for_streams(self) -> bool:
        """Whether one graph embeds and scores, fast enough for the window of each thread at each step."""
        return self._whole is not None

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
        if self._whole is not None:
            return self._embed_and_score_whole(rates)
        z, scores = self._embedded(windows, rates), np.empty(len(rates), dtype=np.float64)
        for rows in _portions(len(z)):
            difference = self._decoder.run(EMBEDDING, z[rows]) - rates[rows]  # (portion, steps, 4)
            flat = difference.reshape(len(difference), -1)
            scores[rows] = np.einsum("ij,ij->i", flat, flat) / flat.shape[1]
        return z, scores

    def embed_and_score_rates(self, rates: Array) -> tuple[Array, Array]:
        """Embeddings and scores of one portion of rates (windows, steps, 4) by the graph of `fast`, unchecked; for streams."""
        if self._whole is None:
            raise ModelError(
                f"An autoencoder of kind {self.settings.architecture} has no graph that scores.",
                hint="Train one that has: stormpetrel traces train --architecture fast",
            )
        z, error = self._whole.run_all(RATES, rates)
        return z, error

    def _embed_and_score_whole(self, rates: Array) -> tuple[Array, npt.NDArray[np.float64]]:
        z = np.empty((len(rates), self.settings.embedding), dtype=np.float32)
        scores = np.empty(len(rates), dtype=np.float64)
        for rows in _portions(len(rates), FAST_AT_ONCE):
            z[rows], scores[rows] = self.embed_and_score_rates(rates[rows])
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
        if self._whole is not None and not all(np.isfinite(output).all() for output in self._whole.run_all(RATES, idle)):
            raise ModelFormatError("Its graphs give something else than embeddings and rates.")
        if z.shape != (1, self.settings.embedding) or rates.shape != idle.shape or not np.isfinite(rates).all():
            raise ModelFormatError("Its graphs give something else than embeddings and rates.")


class Session:
    """One graph in ONNX Runtime, with one input."""

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
        """The one output of the graph for its input of this name."""
        (answer,) = self.run_all(name, value)
        return answer

    def run_all(self, name: str, value: Array) -> list[Array]:
        """All outputs of the graph, in their order, for its input of this name."""
        try:
            answers: list[Array] = self._session.run(None, {name: value})
        except Exception as error:  # as above
            raise ModelFormatError(f"A graph of the model fails: {_first_line(error)}") from None
        return answers


def _message_kernel(settings: AutoencoderSettings, weights: Mapping[str, Array]) -> MessageKernel | None:
    if not settings.architecture.passes_messages:
        return None
    from stormpetrel.traces.networks.message_kernel import MessageKernel

    return MessageKernel.of_weights(settings.embedding, weights)


def _portions(windows: int, size: int | None = None) -> Iterator[slice]:
    size = size or AT_ONCE
    return (slice(start, start + size) for start in range(0, windows, size))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]
