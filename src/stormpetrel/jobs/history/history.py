"""History: what was known about the jobs like this one, at the moment of a prediction.

job frame -> History.sweep -> readings per moment (float32, one row per job). The same object takes jobs in one at a time.
An outcome counts from the moment its job *ended*; at equal times readings come first.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.keys import (
    FEW,
    READINGS,
    READINGS_OF,
    SPACES,
    SPACES_WITH_SIMILAR,
    Space,
    key,
    key_columns,
    keys_of_few,
    stand_ins,
    with_request,
)
from stormpetrel.jobs.moments import TWO_MINUTES_S, Moment
from stormpetrel.jobs.outcomes import NEVER_STARTED, OUTCOMES, failed, outcome
from stormpetrel.learn.similar_texts import SimilarTexts, similar_names, similar_scripts
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, SCRIPT_SIGNATURE
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, FINISHED

Matrix = NDArray[np.float32]
_OUTCOME_CODES: Final = {**{name: code for code, name in enumerate(OUTCOMES)}, NEVER_STARTED: -2}  # as the kernel has them
_NODES: Final = "nodes"  # among the spaces in a file
_STRANGER: Final = 0  # the row of everybody who is asked about and was never taken in


@dataclass(frozen=True, slots=True)
class Readings:
    """The history, per moment: matrices of one row per job, NaN where the moment never came."""

    names: tuple[str, ...]
    similarity: Matrix
    at: Mapping[Moment, Matrix]
    nodes: Mapping[Moment, Matrix]


@dataclass(slots=True)
class JobArrays:
    """A job frame as the compiled sweep wants it: seconds, codes, numbers.

    Every array can be written and lies row by row: numba compiles anew (a second and more) for each mixture of those that do not.
    """

    submit: NDArray[np.float64]
    start: NDArray[np.float64]  # NaN where it never started
    end: NDArray[np.float64]  # NaN where it has not ended
    codes: NDArray[np.int64]  # (job, space), −1 for none
    asked: NDArray[np.float64]  # (job, 3): log CPUs, log limit, log memory
    first_run: NDArray[np.bool_]  # a rerun carries the submit time of the first run: nobody knew of it then
    failed: NDArray[np.float64]
    outcome: NDArray[np.int64]
    log_run: NDArray[np.float64]
    limit_share: NDArray[np.float64]
    node_from: NDArray[np.int64]
    node_codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Advanced:
    """What one step of the live path found: readings at the moments that were due, and which events they were."""

    readings: Readings
    due: NDArray[np.bool_]  # (job, event): taken in by this step


@dataclass
class History:
    """Everything that is remembered about users, applications, queues, shapes and nodes; in constant time per job."""

    failure_states: tuple[str, ...] = tuple(DEFAULT_FAILURE_STATES)
    dropped_states: tuple[str, ...] = ()
    stand_in: Mapping[str, str] | None = None  # which allocated column stands in for a missing request; found at the first sweep
    spaces: tuple[Space, ...] = ()  # the site first, and none without its parent; all where none are named
    unread: Collection[str] = ()  # spaces that are remembered because others lean on them, and of which nothing is read
    similar_names: bool = False  # rates lean on those of similar names and scripts
    _codes: list[dict[str, int]] = field(default_factory=list)
    _nodes: dict[str, int] = field(default_factory=dict)
    _count: int = 1  # row 0 stays empty: it stands for everybody who is only asked about
    _similar: dict[tuple[object, ...], Matrix] = field(default_factory=dict)  # of jobs not yet ended: fixed at submission

    def __post_init__(self) -> None:
        from stormpetrel.jobs.history.kernel import empty_rows

        self._rows = empty_rows(64)
        self._node_rows = empty_rows(64)
        self.spaces = self.spaces or (SPACES_WITH_SIMILAR if self.similar_names else SPACES)
        self._space_names = own = tuple(space.name for space in self.spaces)
        self._codes = self._codes or [{} for _ in own]
        self._similar_texts: dict[str, SimilarTexts] = {}  # by space
        if self.similar_names:
            self._similar_texts = {"similar_name": similar_names(), "similar_script": similar_scripts()}
        self._parents = np.array([-1 if s.parent is None else own.index(s.parent) for s in self.spaces], dtype=np.int64)
        self._user = own.index("user") if "user" in own else 0  # without users nobody asks how a request differs from the last
        self._wanted = np.full((len(own), len(READINGS)), -1, dtype=np.int64)
        names: list[str] = []
        for row, space in enumerate(own):
            for reading in () if space in self.unread else READINGS_OF[space]:
                self._wanted[row, READINGS.index(reading)] = len(names)
                names.append(f"{space}.{reading}")
        self.names: tuple[str, ...] = tuple(names)

    def sweep(self, jobs: pl.DataFrame, moments: Collection[Moment] = ()) -> Readings:
        """Take in every event of these jobs in the order of time, and read the history at each job's moments."""
        if self.stand_in is None:
            self.stand_in = stand_ins(jobs)
        arrays = self._arrays(jobs)
        readings = self._run(*_events(arrays), arrays, moments)
        self._remember_similarity(jobs.filter(np.isnan(arrays.end)), readings.similarity[np.isnan(arrays.end)])
        return readings

    def _run(
        self,
        kind: NDArray[np.int8],
        job: NDArray[np.int64],
        time: NDArray[np.float64],
        arrays: JobArrays,
        moments: Collection[Moment],
        height: int | None = None,
    ) -> Readings:
        """Walk through these events; readings of the first `height` jobs, of all where it is left out. Others may only end."""
        from stormpetrel.jobs.history import kernel as compiled

        height = arrays.submit.size if height is None else height
        similarity = np.full((height, len(compiled.SIMILARITY)), np.nan, dtype=np.float32)
        at = {moment: np.full((height if moment in moments else 0, len(self.names)), np.nan, np.float32) for moment in Moment}
        later = (Moment.START, Moment.TWO_MINUTES)
        nodes = {m: np.full((height if m in moments else 0, len(compiled.NODE_READINGS)), np.nan, np.float32) for m in later}
        compiled.sweep(
            kind, job, time, arrays.codes, self._parents, self._wanted, self._user, arrays.asked,
            ~np.isnan(arrays.start), arrays.first_run, arrays.failed, arrays.outcome, arrays.log_run, arrays.limit_share,
            arrays.node_from, arrays.node_codes, self._rows, self._node_rows,
            similarity, at[Moment.SUBMIT], at[Moment.START], at[Moment.TWO_MINUTES],
            nodes[Moment.START], nodes[Moment.TWO_MINUTES],
        )  # fmt: skip
        wanted = {moment: at[moment] for moment in Moment if moment in moments}
        return Readings(self.names, similarity, wanted, {m: nodes[m] for m in later if m in moments})

    def read(self, jobs: pl.DataFrame, moment: Moment, now: NDArray[np.float64]) -> Readings:
        """What the history says about these jobs, each at its own `now` (Unix seconds); nothing is taken in."""
        from stormpetrel.jobs.history import kernel as compiled

        frame = with_request(jobs, self.stand_in or {})
        codes, requests = self._code_matrix(frame, take_in=False), _request_logarithms(frame)
        node_from, node_codes = self._node_arrays(frame, take_in=False)
        similarity = np.full((jobs.height, len(compiled.SIMILARITY)), np.nan, dtype=np.float32)
        out = np.full((jobs.height, len(self.names)), np.nan, dtype=np.float32)
        nodes = np.full((jobs.height, len(compiled.NODE_READINGS)), np.nan, dtype=np.float32)
        compiled.read_many(
            self._rows, self._node_rows, codes, self._parents, self._wanted, self._user, requests,
            node_from, node_codes, now, similarity, out, nodes,
        )  # fmt: skip
        if moment is not Moment.SUBMIT and self._similar:
            for row, job in enumerate(jobs.select(KEY).iter_rows()):
                similarity[row] = self._similar.get(job, similarity[row])
        return Readings(self.names, similarity, {moment: out}, {moment: nodes})

    def take_in(self, jobs: pl.DataFrame, event: Literal["submit", "start", "end"]) -> None:
        """Take in one event of each of these jobs, in their order: constant time per job, whatever the history holds."""
        from stormpetrel.jobs.history import kernel as compiled

        arrays = self._arrays(jobs)
        time = {"submit": arrays.submit, "start": arrays.start, "end": arrays.end}[event]
        kind = {"submit": compiled.SUBMIT, "start": compiled.START, "end": compiled.END}[event]
        which = np.flatnonzero(~np.isnan(time))
        readings = self._run(np.full(which.size, kind, dtype=np.int8), which, time[which], arrays, ())
        if event == "submit":
            self._remember_similarity(jobs, readings.similarity)
        elif event == "end":
            for job in jobs.select(KEY).iter_rows():
                self._similar.pop(job, None)

    def advance(
        self, jobs: pl.DataFrame, done: NDArray[np.bool_], *, since: float, until: float, moments: Collection[Moment] = ()
    ) -> Advanced:
        """Take in what has happened to these jobs up to `until` (Unix seconds) and is not done yet, in the order of time.

        `done` has one row per job and one column per event: submission, start, two minutes, end. An event from before `since`
        was heard of late: it counts as of then, for the past cannot be told again. Readings are made at `moments`.
        """
        arrays = self._arrays(jobs)
        happened = event_times(jobs)
        due = (happened <= until) & ~done
        job, kind = np.nonzero(due)
        time = happened[job, kind]
        known_from = np.maximum(time, since)
        order = np.lexsort((kind, time, known_from))  # at equal times in the order of a job's life, and of the frame
        readings = self._run(kind[order].astype(np.int8), job[order], known_from[order], arrays, moments)
        earlier = np.flatnonzero(~due[:, 0])
        for row, key_values in zip(earlier, jobs[earlier].select(KEY).iter_rows(), strict=True):
            readings.similarity[row] = self._similar.get(key_values, readings.similarity[row])
        over = due[:, 3] | done[:, 3]
        lives = due[:, 0] & ~over
        self._remember_similarity(jobs.filter(lives), readings.similarity[lives])
        for key_values in jobs.filter(over & ~due[:, 0]).select(KEY).iter_rows():
            self._similar.pop(key_values, None)
        return Advanced(readings, due)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that it remembers, as plain arrays: rows, the texts of the keys in a row, and jobs not yet ended."""
        arrays: dict[str, NDArray[Any]] = {
            "rows": self._rows[: self._count],
            "node_rows": self._node_rows[: len(self._nodes) + 1],
        }
        for name, known in (*zip(self._space_names, self._codes, strict=True), (_NODES, self._nodes)):
            texts = [text.encode() for text in known]
            arrays[f"text.{name}"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
            arrays[f"length.{name}"] = np.array([len(text) for text in texts], dtype=np.int64)
            arrays[f"code.{name}"] = np.array(list(known.values()), dtype=np.int64)
        jobs = pl.DataFrame(list(self._similar), schema={name: JOB_SCHEMA[name] for name in KEY}, orient="row")
        content = io.BytesIO()
        jobs.write_ipc(content)
        arrays["open_jobs"] = np.frombuffer(content.getvalue(), dtype=np.uint8)
        for name, texts_of_groups in self._similar_texts.items():
            arrays |= texts_of_groups.to_arrays(name)
        arrays["similarity"] = np.array(list(self._similar.values()), dtype=np.float32).reshape(jobs.height, 3)
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Remember what `to_arrays` has written, in place of whatever was known; KeyError or ValueError where something lacks.

        Each array is looked up once: of a file that is read as it is asked, one is in memory at a time. The rows of ten million
        jobs are a quarter of a gigabyte; they get their room here, before there is anything else.
        """
        (rows, count), (node_rows, nodes) = (_with_room(arrays[name]) for name in ("rows", "node_rows"))
        codes = [_dictionary(arrays, name) for name in (*self._space_names, _NODES)]
        sound = rows.shape[1:] == node_rows.shape[1:] == self._rows.shape[1:] and nodes == len(codes[-1]) + 1
        if not sound or any(max(known.values(), default=0) >= count for known in codes[:-1]):
            raise ValueError("its rows are not those of its keys")
        jobs = pl.read_ipc(io.BytesIO(arrays["open_jobs"].tobytes()))
        self._rows, self._node_rows, self._count = rows, node_rows, count
        self._codes, self._nodes = codes[:-1], codes[-1]
        for name, texts_of_groups in self._similar_texts.items():
            texts_of_groups.restore(arrays, name)
        self._similar = dict(zip(jobs.select(KEY).iter_rows(), np.array(arrays["similarity"], np.float32), strict=True))

    def _remember_similarity(self, jobs: pl.DataFrame, similarity: Matrix) -> None:
        self._similar.update(zip(jobs.select(KEY).iter_rows(), similarity, strict=True))

    def _arrays(self, jobs: pl.DataFrame) -> JobArrays:
        frame = with_request(jobs, self.stand_in or {})
        numbers = frame.select(
            failed=failed(self.failure_states, self.dropped_states).cast(pl.Float64),
            outcome=outcome().replace_strict(_OUTCOME_CODES, default=-1, return_dtype=pl.Int64),
            log_run=pl.col("elapsed_s").log1p(),
            limit_share=(pl.col("elapsed_s") / pl.col("time_limit_s")).clip(0.0, 2.0),
        )
        submit, start, end = _submit_start_end(frame)
        node_from, node_codes = self._node_arrays(frame, take_in=True)
        return JobArrays(
            submit=submit,
            start=start,
            end=end,
            codes=self._code_matrix(frame, take_in=True),
            asked=_request_logarithms(frame),
            first_run=jobs["restart"].fill_null(0).to_numpy() == 0,
            failed=numbers["failed"].to_numpy(writable=True),
            outcome=numbers["outcome"].to_numpy(writable=True),
            log_run=numbers["log_run"].to_numpy(writable=True),
            limit_share=numbers["limit_share"].to_numpy(writable=True),
            node_from=node_from,
            node_codes=node_codes,
        )

    def _with_similar(self, frame: pl.DataFrame, *, take_in: bool) -> pl.DataFrame:
        """The frame with `similar_name`, `similar_script` and `similar` (the script's group, else the name's), where the site
        allows them; new texts come in the frame's order.
        """
        if not self.similar_names:
            return frame
        signed = frame["extra"].null_count() < frame.height
        signature = frame.select(
            pl.col("extra").map.get(SCRIPT_SIGNATURE) if signed else pl.repeat(None, pl.len(), dtype=pl.String)
        ).to_series()
        texts = {"similar_name": frame["family"], "similar_script": signature}
        groups = {name: self._similar_texts[name].group(text, take_in=take_in) for name, text in texts.items()}
        return frame.with_columns(**groups).with_columns(similar=pl.coalesce("similar_script", "similar_name"))

    def _code_matrix(self, frame: pl.DataFrame, *, take_in: bool) -> NDArray[np.int64]:
        frame = self._with_similar(frame, take_in=take_in)
        if frame.height <= FEW and not take_in:  # joins cost more than a look
            looked_up = [
                [-1 if text is None else known.get(text, _STRANGER) for known, text in zip(self._codes, row, strict=True)]
                for row in keys_of_few({name: frame[name].to_list() for name in key_columns(self.spaces)}, self.spaces)
            ]
            return np.array(looked_up, dtype=np.int64).reshape(frame.height, len(self.spaces))
        keys = frame.select(key(space) for space in self.spaces)
        codes, before = np.empty((frame.height, len(self.spaces)), dtype=np.int64), self._count
        for column, space in enumerate(self._space_names):
            known = self._codes[column]
            distinct = keys[space].unique(maintain_order=True).drop_nulls()
            names = distinct.to_list()
            for name in names if take_in else ():
                if name not in known:
                    known[name] = self._count
                    self._count += 1
            codes[:, column] = _mapped(keys[space], distinct, [known.get(name, _STRANGER) for name in names])
        self._rows = _grown(self._rows, before, self._count)
        return codes

    def _node_arrays(self, frame: pl.DataFrame, *, take_in: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        from stormpetrel.jobs.history.kernel import MOST_NODES

        height = frame.height
        if frame["node_list"].null_count() == height:
            return np.zeros(height + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
        distinct = frame["node_list"].unique().drop_nulls()
        names, before = [expand_nodes(text)[:MOST_NODES] for text in distinct], len(self._nodes) + 1
        if take_in:
            for name in (name for several in names for name in several):
                self._nodes.setdefault(name, len(self._nodes) + 1)
        lists = [[self._nodes.get(name, _STRANGER) for name in several] for several in names]
        self._node_rows = _grown(self._node_rows, before, len(self._nodes) + 1)
        starts = np.cumsum([0, *map(len, lists)])
        flat = np.array([code for codes in lists for code in codes], dtype=np.int64)
        which = _mapped(frame["node_list"], distinct, list(range(len(lists))))
        lengths = np.where(which >= 0, np.diff(starts)[which], 0)
        node_from = np.append(0, np.cumsum(lengths))
        offsets = np.repeat(np.where(which >= 0, starts[which], 0) - node_from[:-1], lengths)
        return node_from.astype(np.int64), flat[np.arange(node_from[-1]) + offsets]


def _dictionary(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, int]:
    """The keys of a space and their rows, as `to_arrays` has written them."""
    bounds = [0, *np.cumsum(arrays[f"length.{name}"]).tolist()]
    text = arrays[f"text.{name}"].tobytes()
    texts = (text[begin:end].decode() for begin, end in pairwise(bounds))
    return dict(zip(texts, arrays[f"code.{name}"].tolist(), strict=True))


def _request_logarithms(frame: pl.DataFrame) -> NDArray[np.float64]:
    """What each job asks for, as logarithms: CPUs, time limit, memory."""
    return frame.select(
        cpus=pl.col("asked_cpus").cast(pl.Float64).log1p(),
        limit=pl.col("time_limit_s").log1p(),
        mem=pl.col("req_mem_bytes").cast(pl.Float64).log1p(),
    ).to_numpy(order="c", writable=True)


def _seconds(column: str) -> pl.Expr:
    return pl.col(column).dt.epoch("us").cast(pl.Float64) / 1e6


def _mapped(values: pl.Series, distinct: pl.Series, numbers: list[int]) -> NDArray[np.int64]:
    """The number of each value; −1 for null."""
    table = pl.DataFrame({"value": distinct, "number": pl.Series(numbers, dtype=pl.Int64)})
    joined = pl.DataFrame({"value": values}).join(table, on="value", how="left", maintain_order="left")
    return joined["number"].fill_null(-1).to_numpy()


def _grown(rows: NDArray[np.float64], used: int, count: int) -> NDArray[np.float64]:
    """The rows, of which `used` are in use, with `count` in use: the new ones are of entities that nothing is known about.

    Where there is no room left it is doubled, so that growth is paid for once: what is not written yet takes no memory.
    """
    from stormpetrel.jobs.history.kernel import empty_rows

    if count > len(rows):
        rows, _ = _with_room(rows[:used], max(count, 2 * len(rows)))
    if count > used:
        rows[used:count] = empty_rows(1)
    return rows


def _with_room(rows: NDArray[Any], room: int | None = None) -> tuple[NDArray[np.float64], int]:
    """A copy of the rows with room for so many, for twice as many where none are named; and how many there are."""
    roomy = np.empty((2 * len(rows) if room is None else room, *rows.shape[1:]), np.float64)
    roomy[: len(rows)] = rows
    return roomy, len(rows)


def in_order(jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs in the order in which they are taken in: it decides between events of the same second."""
    return jobs.sort("submit_time", "job_id", "array_task", "restart", maintain_order=True)


def event_times(jobs: pl.DataFrame) -> NDArray[np.float64]:
    """When each job was submitted, started, had run for two minutes, and ended: (job, event), NaN where it never did."""
    submit, start, end = _submit_start_end(jobs)
    two_minutes = start + TWO_MINUTES_S
    return np.stack([submit, start, np.where(end <= two_minutes, np.nan, two_minutes), end], axis=1)


def _submit_start_end(frame: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    numbers = frame.select(
        submit=_seconds("submit_time"),
        start=_seconds("start_time"),
        end=pl.when(pl.col("state").is_in([str(s) for s in FINISHED])).then(_seconds("end_time")),
    )
    submit, end = numbers["submit"].to_numpy(), numbers["end"].to_numpy()
    # Clocks go backwards in real logs: nothing starts before it was submitted, or ends before it started.
    start = np.maximum(numbers["start"].to_numpy(), submit)
    return submit, start, np.fmax(np.maximum(end, submit), np.where(np.isnan(end), np.nan, start))


def _events(arrays: JobArrays) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[np.float64]]:
    """Every submission, start, two-minute mark and end, in the order of time; at equal times in this order."""
    from stormpetrel.jobs.history import kernel as compiled

    everyone = np.arange(arrays.submit.size, dtype=np.int64)
    two_minutes = arrays.start + TWO_MINUTES_S
    still_runs = ~np.isnan(two_minutes) & ~(arrays.end <= two_minutes)
    parts = [
        (compiled.SUBMIT, everyone, arrays.submit),
        (compiled.START, everyone[~np.isnan(arrays.start)], arrays.start[~np.isnan(arrays.start)]),
        (compiled.TWO_MINUTES, everyone[still_runs], two_minutes[still_runs]),
        (compiled.END, everyone[~np.isnan(arrays.end)], arrays.end[~np.isnan(arrays.end)]),
    ]
    kind = np.concatenate([np.full(jobs.size, what, dtype=np.int8) for what, jobs, _ in parts])
    job = np.concatenate([jobs for _, jobs, _ in parts])
    time = np.concatenate([times for _, _, times in parts])
    order = np.lexsort((kind, time))
    return kind[order], job[order], time[order]
