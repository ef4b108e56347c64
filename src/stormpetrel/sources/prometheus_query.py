"""The query API of Prometheus and whatever speaks it (VictoriaMetrics, Thanos, Mimir) -> series of raw samples.

Raw samples come from an instant query with a range selector, `metric[600s]`: each sample as it was stored, with its own time. A
range query (`/api/v1/query_range`) would put the last value at every step of its own grid, and hide which samples were missed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stormpetrel.config import PrometheusSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.records.traces import Seconds
from stormpetrel.sources.server_connection import Address, BusyError, HttpServer

if TYPE_CHECKING:
    import httpx

    from stormpetrel.sources.prometheus_matrix import SampleBlock

Reader = Callable[[bytes], dict[str, Any] | None]  # of a body

_MOST_BYTES: Final = 64 * 1024**2  # of one answer: about two million samples
_SHORTEST_S: Final = 2.0  # a piece of time that is not halved any more
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_NO_POST: Final = frozenset({404, 405, 501})
_FEWER: Final = "Check prometheus.select, or choose fewer nodes by it."
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
    """A server that answers queries; it is asked by POST, or by GET where nothing else is let through."""

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
        from stormpetrel.sources.prometheus_matrix import SampleBlock, read_matrix

        span_s = end_s - start_s
        found: list[SampleBlock] = []

        def quick(body: bytes) -> dict[str, Any] | None:
            matrix = read_matrix(body)
            found[:] = [] if matrix is None else [matrix[0]]
            return None if matrix is None else _json_of(matrix[1])

        if span_s <= self._longest_s:
            form = {"query": f"{selector}[{round(span_s * 1000)}ms]", "time": f"{end_s:.3f}"}
            try:
                answer = self._ask(form, lambda body: quick(body) or _json_of(body))
                if found and answer["data"]["resultType"] == "matrix":
                    return found[0]
            except (KeyError, TypeError):
                pass  # the slow way says what is wrong
            except _TooMuchError:
                pass  # the slow way asks for less
        series = self.samples(selector, start_s, end_s)
        return SampleBlock.of_series(
            [one.labels for one in series], [one.time_s for one in series], [one.values for one in series]
        )

    def _series(self, expression: str, at_s: float) -> list[Series]:
        answer = self._ask({"query": expression, "time": f"{at_s:.3f}"})
        try:
            data = answer["data"]
            pairs = {"matrix": "values", "vector": "value"}[data["resultType"]]
            return [_series_of(entry["metric"], entry[pairs], single=pairs == "value") for entry in data["result"]]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            raise self.failure(SourceFormatError, "answered in a form that no Prometheus has", "Check prometheus.url.") from None

    def _ask(self, form: dict[str, str], read: Reader | None = None) -> dict[str, Any]:
        """The answer to a query, as JSON or what `read` makes of it; three tries where the server is slow, away or busy."""
        return self._tried(
            lambda: self._once(form, read or _json_of), hint="Check that it runs and can be reached: stormpetrel doctor."
        )

    def _once(self, form: dict[str, str], read: Reader) -> dict[str, Any]:
        status, headers, body = self._exchanged(lambda: self._request(form), most_bytes=_MOST_BYTES, too_long=_TooMuchError)
        if self._post and status in _NO_POST:  # a proxy that lets only GET through
            self._post = False
            return self._once(form, read)
        answer = read(body) if status == 200 else _json_of(body)
        if status == 200:
            return self._whole(answer, body, headers.get("content-type", ""))
        raise self._refusal(status, answer, headers)

    def _request(self, form: dict[str, str]) -> AbstractContextManager[httpx.Response]:
        # Not packed: 20,000 threads are 9 MB a second, which costs a network less than packing and unpacking cost two machines.
        headers = {"Accept-Encoding": "identity"}
        if self._post:
            return self._client.stream("POST", "api/v1/query", data=form, headers=headers)
        return self._client.stream("GET", "api/v1/query", params=form, headers=headers)

    def _whole(self, answer: dict[str, Any] | None, body: bytes, kind: str) -> dict[str, Any]:
        """An answer that is all there: no page of a proxy, no half of a body, no part of the data."""
        if answer is None and (body.lstrip()[:1] == b"<" or "html" in kind):
            raise self.failure(
                SourceFormatError, "answered with a web page, not with data", "Check prometheus.url and any proxy before it."
            )
        if answer is None:
            raise BusyError("answered with something that is no JSON, or half of it")
        if answer.get("status") != "success":
            raise BusyError(f"answered with an error: {_words(answer)}")
        if answer.get("isPartial") or answer.get("warnings"):  # VictoriaMetrics, and Thanos: a store behind it is away
            raise BusyError(f"has only part of the data now: {str(answer.get('warnings') or 'isPartial')[:200]}")
        return answer

    def _refusal(self, status: int, answer: dict[str, Any] | None, headers: httpx.Headers) -> Exception:
        said = f": {_words(answer)}" if answer else ""
        if status == 422 or (answer or {}).get("errorType") == "timeout":
            return _TooMuchError(f"will not answer the query ({status}){said}")
        if status in _BUSY:
            asked = headers.get("retry-after", "")
            return BusyError(f"answered {status}{said}", float(asked) if asked.isdigit() else 0.0)
        if status in (401, 403):
            hint = "Check prometheus.token_file: the token may have expired."
            return self.failure(SourceUnavailableError, f"refused the token, or wants one ({status})", hint)
        if 300 <= status < 400:
            target = headers.get("location", "")[:200]
            return self.failure(
                SettingsError, f"points to another address, {target!r}, which is not followed", "Set prometheus.url to it."
            )
        if status == 400:
            return self.failure(
                SettingsError, f"does not understand the query{said}", "Check prometheus.select and prometheus.node_label."
            )
        return self.failure(SourceUnavailableError, f"answered {status}{said}", "Check prometheus.url: it may need a path.")


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


def _json_of(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _words(answer: dict[str, Any]) -> str:
    text = str(answer.get("error") or answer.get("errorType") or "without a reason")
    return "".join(letter if letter.isprintable() else " " for letter in text)[:300]


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
