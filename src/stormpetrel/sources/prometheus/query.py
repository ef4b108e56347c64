"""The query API of Prometheus and whatever speaks it (VictoriaMetrics, Thanos, Mimir) -> series of raw samples.

Raw samples come from an instant query with a range selector, `metric[600s]`: each sample as it was stored, with its own time. A
range query (`/api/v1/query_range`) would put the last value at every step of its own grid, and hide which samples were missed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stormpetrel.config import PrometheusSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.records.traces import Seconds
from stormpetrel.sources.http import Address, BusyError, HttpServer, Reply, TooLongError, json_object, shown

if TYPE_CHECKING:
    from stormpetrel.sources.prometheus.matrix import SampleBlock

Reader = Callable[[bytes], dict[str, Any] | None]  # of a body

_MOST_BYTES: Final = 64 * 1024**2  # of one answer: about two million samples
_SHORTEST_S: Final = 2.0  # a piece of time that is not halved any more
_NO_POST: Final = frozenset({404, 405, 501})
_FEWER: Final = "Check prometheus.select, or choose fewer nodes by it."
# Not packed: 20,000 threads are 9 MB a second, which costs a network less than packing and unpacking cost two machines.
_UNPACKED: Final = {"Accept-Encoding": "identity"}
_PUNCTUATION: Final = re.compile(r"[^\w\u0080-\U0010ffff]", re.ASCII)  # Go's expressions take no \\ before other letters


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Samples with the same labels, as the server has them."""

    labels: dict[str, str]
    time_s: Seconds  # (samples,)
    values: Seconds  # (samples,)


class _TooMuchError(Exception):
    """The server, or we, will not take so much at once."""


class PrometheusServer(HttpServer):
    """A server that answers queries, sent by POST, or by GET where a proxy lets nothing else through."""

    def __init__(self, settings: PrometheusSection, *, pause: Callable[[float], None] = time.sleep) -> None:
        super().__init__(_address(settings), pause=pause)
        self._longest_s = float("inf")  # what the server took at once
        self._post = True

    def instant(self, expression: str, at_s: float) -> list[Series]:
        """What an expression comes to at a moment: series of one sample each."""
        try:
            return self._series(expression, at_s)
        except _TooMuchError as refusal:
            raise self.failure(SourceUnavailableError, str(refusal), _FEWER) from None

    def samples(self, selector: str, start_s: float, end_s: float) -> list[Series]:
        """The raw samples of a selector in a span of time, in pieces as small as the server needs them."""
        span_s = end_s - start_s
        if span_s <= self._longest_s:
            try:
                return self._series(f"{selector}[{round(span_s * 1000)}ms]", end_s)
            except _TooMuchError as refusal:
                if span_s < 2 * _SHORTEST_S:
                    raise self.failure(SourceUnavailableError, str(refusal), _FEWER) from None
                self._longest_s = span_s / 2
        middle_s = start_s + span_s / 2
        return _joined([*self.samples(selector, start_s, middle_s), *self.samples(selector, middle_s, end_s)])

    def block(self, selector: str, start_s: float, end_s: float) -> SampleBlock:
        """The same samples as one block, read ten times as fast; of an answer in an unusual form, by way of its series."""
        from stormpetrel.sources.prometheus.matrix import SampleBlock, read_matrix

        span_s = end_s - start_s
        blocks: list[SampleBlock] = []

        def quick(body: bytes) -> dict[str, Any] | None:
            matrix = read_matrix(body)
            blocks[:] = [] if matrix is None else [matrix[0]]
            return None if matrix is None else json_object(matrix[1])

        if span_s <= self._longest_s:
            form = {"query": f"{selector}[{round(span_s * 1000)}ms]", "time": f"{end_s:.3f}"}
            try:
                answer = self._query(form, lambda body: quick(body) or json_object(body))
                if blocks and answer["data"]["resultType"] == "matrix":
                    return blocks[0]
            except (KeyError, TypeError):
                pass  # the slow way reports what is wrong
            except _TooMuchError:
                pass  # the slow way requests less
        samples = self.samples(selector, start_s, end_s)
        return SampleBlock.of_series(*([getattr(series, name) for series in samples] for name in ("labels", "time_s", "values")))

    def _series(self, expression: str, at_s: float) -> list[Series]:
        answer = self._query({"query": expression, "time": f"{at_s:.3f}"})
        try:
            data = answer["data"]
            pairs = {"matrix": "values", "vector": "value"}[data["resultType"]]
            return [_series_of(entry["metric"], entry[pairs], single=pairs == "value") for entry in data["result"]]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            raise self.failure(SourceFormatError, "answered in a form that no Prometheus has", "Check prometheus.url.") from None

    def _query(self, form: dict[str, str], read: Reader = json_object) -> dict[str, Any]:
        """The answer to a query, as JSON or as `read` returns it."""
        return self.retried(lambda: self._once(form, read), hint="Check that it runs and can be reached: stormpetrel doctor.")

    def _once(self, form: dict[str, str], read: Reader) -> dict[str, Any]:
        try:
            reply = self._sent(form)
        except TooLongError as error:
            raise _TooMuchError(str(error)) from None
        if self._post and reply.status in _NO_POST:  # a proxy that lets only GET through
            self._post = False
            return self._once(form, read)
        if reply.status == 200:
            return _whole(self.decoded(reply, read))
        raise self._refused(reply, json_object(reply.body))

    def _sent(self, form: dict[str, str]) -> Reply:
        if self._post:
            return self.exchange("POST", "api/v1/query", form=form, headers=_UNPACKED, most_bytes=_MOST_BYTES)
        return self.exchange("GET", "api/v1/query", params=list(form.items()), headers=_UNPACKED, most_bytes=_MOST_BYTES)

    def _refused(self, reply: Reply, answer: dict[str, Any] | None) -> Exception:
        message = _error_of(answer) if answer else ""
        colon = f": {message}" if message else ""
        if reply.status == 422 or (answer or {}).get("errorType") == "timeout":
            return _TooMuchError(f"will not answer the query ({reply.status}){colon}")
        if reply.status == 400:
            hint = "Check prometheus.select and prometheus.node_label."
            return self.failure(SettingsError, f"does not understand the query{colon}", hint)
        if reply.status == 404:
            hint = "Check prometheus.url: it may need a path."
            return self.failure(SourceUnavailableError, f"answered {reply.status}{colon}", hint)
        return self.refusal(reply, message)


def _whole(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that holds all of the data; BusyError where it is an error or a part."""
    if answer.get("status") != "success":
        raise BusyError(f"answered with an error: {_error_of(answer)}")
    if answer.get("isPartial") or answer.get("warnings"):  # VictoriaMetrics, and Thanos: a store behind it is away
        raise BusyError(f"has only part of the data now: {shown(answer.get('warnings') or 'isPartial')[:200]}")
    return answer


def quoted(text: str) -> str:
    """Text as a string of the query language, whatever is in it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def any_of(names: list[str], *, ending: str = "") -> str:
    """A regular expression, as a string of the query language, for exactly these texts and what may stand behind them."""
    plain = "|".join(_PUNCTUATION.sub(r"\\\g<0>", name) for name in names)
    return quoted(f"({plain}){ending}")


def _address(settings: PrometheusSection) -> Address:
    return Address(
        "prometheus", settings.url, settings.token_file, settings.ca_file, settings.timeout_s, example="http://host:9090"
    )


def _error_of(answer: dict[str, Any]) -> str:
    return shown(answer.get("error") or answer.get("errorType") or "without a reason")


def _series_of(metric: dict[str, str], values: list[Any], *, single: bool) -> Series:
    pairs = [values] if single else values
    labels = {str(name): str(value) for name, value in metric.items()}
    return Series(labels, np.array([pair[0] for pair in pairs], dtype=np.float64), np.array([float(pair[1]) for pair in pairs]))


def _joined(parts: list[Series]) -> list[Series]:
    """Pieces of the same series as one."""
    together: dict[tuple[tuple[str, str], ...], list[Series]] = {}
    for part in parts:
        together.setdefault(tuple(sorted(part.labels.items())), []).append(part)
    return [
        Series(pieces[0].labels, *(np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("time_s", "values")))
        for pieces in together.values()
    ]
