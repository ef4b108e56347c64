"""Profiles: the kinds of jobs that a site runs, found by clustering, each described in one sentence;
profiles of requests, known at submission.

prepared frame -> JobProfiles.fit -> assign -> profile 0, 1, …; prepared frame with `profile` -> tables.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import polars as pl

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.jobs.groups import ACTIVITIES, DURATIONS, JOB_TYPES, GroupLimits, duration, job_type, user_groups
from stormpetrel.jobs.history.keys import stand_ins, with_request
from stormpetrel.jobs.outcomes import COMPLETED
from stormpetrel.jobs.preparation import LABELS, Normaliser, PreparationSettings, label, prepare
from stormpetrel.learn.saving import METADATA, load_model, save_model
from stormpetrel.records.arrays import Floats
from stormpetrel.records.states import DEFAULT_FAILURE_STATES

# Known only at the end of a job: for description.
END: Final = ("cpu", "mem_gb", "run_time_s", "wait_time_s")
# What is requested: known at submission, so that the profile may be a feature there.
SUBMIT: Final = ("req_cpu", "req_node", "req_mem_gb", "time_limit_s")
FORMAT_VERSION: Final = 1
FILE: Final = METADATA
KIND: Final = "job-profiles"

_MAX_PROFILES: Final = 10
_FIT_ROWS: Final = 50_000
_SEARCH_ROWS: Final = 10_000  # rows on which K is looked for: ten fits of each kind
_JOBS_PER_PROFILE: Final = 20  # fewer than that many jobs make no profile of their own
# Jobs pile up on round numbers (one node, one hour): without a floor a component shrinks onto such a pile. Standardised units.
_VARIANCE_FLOOR: Final = 1e-2
_FIGURES: Final = ("cpu_low", "cpu_typical", "cpu_high", "run_time_typical_s", "completed_share", "failed_share")
_SUMMARY: Final = pl.Schema({"profile": pl.Int32, "jobs": pl.Int64, **dict.fromkeys(_FIGURES, pl.Float64)})
_STATE: Final = ("columns", "method", "columns_used", "left_out", "k", "k_elbow", "k_bic", "elbow", "bic", "normaliser")
_ARRAYS: Final = ("weights", "means", "covariances")
_FAILURE_TERMS: Final = ((0.1, "seldom fail"), (0.3, "fail now and then"), (0.6, "often fail"), (1.01, "mostly fail"))
_COMPLETION_TERMS: Final = ((0.95, "nearly always complete"), (0.8, "mostly complete"))


class JobProfiles:
    """Profiles of jobs: a Gaussian mixture (or K-means) over log-scaled, standardised columns, its K found in the data.

    K is the elbow of the K-means distortion (`k_elbow_`), and 1 where no mixture has a lower BIC than a single Gaussian. The
    BIC alone does not choose: its minimum (`k_bic_`) lies at 8 to 10 on five public logs, since each round number that users
    ask for earns a component, and the knee of its curve changed with the seed on three logs of four (2 or 5, 3 to 6), where
    the elbow did not change on any. Profiles are numbered from the lightest to the heaviest.

    Parameters
    ----------
    columns
        `END` or `SUBMIT`, or other number columns of the prepared frame. Those that the log lacks for half of its jobs or
        more, and those that are constant, are left out: see `columns_used_` and `left_out_`.
    method
        `gmm`, or `kmeans`, which is kept as a mixture of equal weights and unit covariances.
    """

    def __init__(self, columns: tuple[str, ...] = END, method: Literal["gmm", "kmeans"] = "gmm") -> None:
        self.columns = columns
        self.method = method

    def fit(self, prepared: pl.DataFrame, seed: int = 0) -> Self:
        """Find the profiles of a prepared frame, on a sample of at most 50,000 of its rows."""
        import sklearn.mixture  # noqa: F401  loaded first, since the limit reaches only libraries that are there
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits

        rng = np.random.default_rng(seed)
        self._choose_columns(prepared)
        values = _matrix(prepared, self.columns_used_)
        complete = values[~np.isnan(values).any(axis=1)] if self.columns_used_ else values[:0]
        sample = complete[np.sort(rng.permutation(len(complete))[:_FIT_ROWS])]
        self.normaliser_ = Normaliser().fit(sample)
        points = self.normaliser_.transform(sample)
        # Several threads wait for each other here: on two busy cores one thread was more than ten times as fast.
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a fit that is not quite converged is a profile like any other
            self._find_k(points[rng.permutation(len(points))[:_SEARCH_ROWS]], seed)
            self._fit_mixture(points, seed)
        self.summary_ = _summary(prepared.with_columns(self.assign(prepared)))
        return self

    def assign(self, prepared: pl.DataFrame) -> pl.Series:
        """The profile of each job, by the columns that are known of it; null where none is (and there is a choice)."""
        points = self.normaliser_.transform(_matrix(prepared, self.columns_used_))  # (job, column)
        if self.k_ == 1:
            return pl.Series("profile", np.zeros(len(points)), dtype=pl.Int32)
        known = ~np.isnan(points)
        pattern = known @ (1 << np.arange(known.shape[1]))
        profile = np.full(len(points), -1, dtype=np.int32)
        for code in np.unique(pattern[pattern > 0]):  # at most 2^columns, mostly one
            rows = np.flatnonzero(pattern == code)
            columns = np.flatnonzero(known[rows[0]])
            profile[rows] = np.argmax(self._log_densities(points[rows][:, columns], columns), axis=1)
        assigned = pl.Series("profile", profile)
        return assigned if (profile >= 0).all() else assigned.replace(-1, None)

    def describe(self, profile: int) -> str:
        """The profile in one sentence for its users: size and length against the other profiles, and how often it fails."""
        if not 0 <= profile < self.k_:
            raise UsageError(f"There is no profile {profile}.", hint=f"Known: 0 to {self.k_ - 1}.")
        rows = self.summary_.filter(pl.col("profile") == profile)
        if rows.is_empty():
            return "jobs of a kind that the log has no clear case of"
        row = rows.row(0, named=True)
        text = (
            _rank_label(row["cpu_typical"], self.summary_["cpu_typical"], ("small", "medium-sized", "large")),
            _rank_label(row["run_time_typical_s"], self.summary_["run_time_typical_s"], ("short", "medium-length", "long")),
        )
        details = (_cpu_text(row["cpu_low"], row["cpu_high"]), _time_text(row["run_time_typical_s"]))
        kind, inside = (", ".join(part for part in parts if part) for parts in (text, details))
        ending = _ending_text(row["completed_share"], row["failed_share"])
        return f"{kind} jobs".strip() + (f" ({inside})" if inside else "") + ending

    def save(self, folder: Path) -> None:
        """Write the profiles as JSON into a new folder."""
        state: dict[str, Any] = {"columns": list(self.columns), "method": self.method}
        state |= {"columns_used": list(self.columns_used_), "left_out": self.left_out_, "normaliser": self.normaliser_.to_dict()}
        state |= {"k": self.k_, "k_elbow": self.k_elbow_, "k_bic": self.k_bic_}
        state |= {"elbow": self.elbow_["distortion"].to_list(), "bic": self.bic_["bic"].to_list()}
        state |= {name: getattr(self, f"{name}_").tolist() for name in _ARRAYS}
        state["summary"] = self.summary_.to_dicts()
        save_model(folder, kind=KIND, format_version=FORMAT_VERSION, metadata=state, files={})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read profiles that `save` wrote."""
        state = _read_state(folder / FILE)
        try:
            return cls._from_state(state)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, pl.exceptions.PolarsError) as error:
            raise _damaged(folder / FILE, str(error).partition("\n")[0] or type(error).__name__) from error

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Self:
        if state["method"] not in ("gmm", "kmeans") or not set(state["columns"]) <= {*END, *SUBMIT}:
            raise ValueError("its method or columns are not known")
        model = cls(tuple(state["columns"]), state["method"])
        model.columns_used_, model.left_out_ = tuple(state["columns_used"]), dict(state["left_out"])
        if not set(model.columns_used_) | set(model.left_out_) <= set(model.columns):
            raise ValueError("it used columns that it does not name")
        model.k_, model.k_elbow_, model.k_bic_ = int(state["k"]), int(state["k_elbow"]), int(state["k_bic"])
        if not 1 <= min(model.k_, model.k_elbow_, model.k_bic_) <= max(model.k_, model.k_elbow_, model.k_bic_) <= _MAX_PROFILES:
            raise ValueError("its number of profiles makes no sense")
        model.elbow_, model.bic_ = _curve("distortion", state["elbow"]), _curve("bic", state["bic"])
        model.normaliser_ = Normaliser.from_dict(state["normaliser"])
        width = len(model.columns_used_)
        model.weights_ = np.array(state["weights"], dtype=np.float64).reshape(model.k_)
        model.means_ = np.array(state["means"], dtype=np.float64).reshape(model.k_, width)
        model.covariances_ = np.array(state["covariances"], dtype=np.float64).reshape(model.k_, width, width)
        scale = np.array([value for pair in model.normaliser_.to_dict().values() for value in _numbers(pair)])
        if not all(np.isfinite(part).all() for part in (model.weights_, model.means_, model.covariances_, scale)):
            raise ValueError("some of its numbers are none")
        model.summary_ = pl.DataFrame(state["summary"], schema=_SUMMARY)
        return model

    def _choose_columns(self, prepared: pl.DataFrame) -> None:
        self.left_out_: dict[str, str] = {}
        for name in self.columns:
            values = prepared[name].drop_nulls() if name in prepared.columns else pl.Series([], dtype=pl.Float64)
            if 2 * len(values) <= prepared.height:
                self.left_out_[name] = "not told for half of the jobs or more"
            elif values.n_unique() == 1:
                self.left_out_[name] = "the same for every job"
        self.columns_used_ = tuple(name for name in self.columns if name not in self.left_out_)

    def _find_k(self, points: Floats, seed: int) -> None:
        """Both curves over K, and the K that is used."""
        distinct = len(np.unique(points, axis=0)) if points.size else 0
        elbow, bic = [], []
        for k in range(1, min(_MAX_PROFILES, distinct) + 1):
            elbow.append(_kmeans(points, k, seed).inertia_)
            if k == 1 or k * _JOBS_PER_PROFILE <= len(points):
                bic.append(_mixture(points, k, seed).bic(points) if len(points) > 1 else 0.0)
        self.elbow_, self.bic_ = _curve("distortion", elbow or [0.0]), _curve("bic", bic or [0.0])
        self.k_elbow_ = knee(self.elbow_["distortion"].to_numpy())
        curve = self.bic_["bic"].to_numpy()
        self.k_bic_ = int(np.argmin(curve)) + 1
        self.k_ = 1 if self.k_bic_ == 1 else max(2, min(self.k_elbow_, len(curve)))

    def _fit_mixture(self, points: Floats, seed: int) -> None:
        width = points.shape[1]
        if self.k_ == 1:
            weights, means, covariances = np.ones(1), np.zeros((1, width)), np.eye(width)[None]
        elif self.method == "gmm":
            fitted = _mixture(points, self.k_, seed)
            weights, means, covariances = fitted.weights_, fitted.means_, fitted.covariances_
        else:
            means = _kmeans(points, self.k_, seed).cluster_centers_
            weights, covariances = np.full(self.k_, 1.0 / self.k_), np.tile(np.eye(width), (self.k_, 1, 1))
        order = np.argsort(means.sum(axis=1), kind="stable")
        self.weights_: Floats = weights[order]  # (profile,)
        self.means_: Floats = means[order]  # (profile, column)
        self.covariances_: Floats = covariances[order]  # (profile, column, column)

    def _log_densities(self, points: Floats, columns: np.typing.NDArray[np.intp]) -> Floats:
        """Log of weight × density of each profile, over the columns that are told; constants left out. (job, profile)."""
        result = np.empty((len(points), self.k_))
        for profile in range(self.k_):
            root = np.linalg.cholesky(self.covariances_[profile][np.ix_(columns, columns)])
            scaled = (points - self.means_[profile, columns]) @ np.linalg.inv(root).T
            result[:, profile] = np.log(self.weights_[profile]) - np.log(np.diag(root)).sum() - 0.5 * (scaled**2).sum(axis=1)
        return result


def knee(curve: Floats) -> int:
    """Where a falling curve over k = 1, 2, … bends: the k farthest below the chord from its first to its last point."""
    drop = float(curve[0] - curve[-1])
    if len(curve) < 3 or drop <= 0:
        return 1
    chord = np.linspace(1.0, 0.0, len(curve))
    return int(np.argmax(chord - (curve - curve[-1]) / drop)) + 1


@dataclass(frozen=True, slots=True)
class ProfileTables:
    """What the jobs of each profile are like: one table per trait, one row per profile that has jobs, in their order."""

    resources: pl.DataFrame
    duration: pl.DataFrame
    activity: pl.DataFrame
    status: pl.DataFrame
    types: pl.DataFrame

    @classmethod
    def of(cls, profiled: pl.DataFrame, limits: GroupLimits = GroupLimits()) -> Self:
        """The tables of prepared jobs with their `profile`."""
        return cls(
            resources=resource_table(profiled),
            duration=duration_table(profiled, limits),
            activity=activity_table(profiled, limits),
            status=status_table(profiled),
            types=type_table(profiled, limits),
        )


def resource_table(profiled: pl.DataFrame) -> pl.DataFrame:
    """Mean and standard deviation of CPUs, memory (GiB), run time and wait time (s) per profile."""
    figures = [
        getattr(pl.col(name), figure)().cast(pl.Float64).alias(f"{name}_{figure}") for name in END for figure in ("mean", "std")
    ]
    return _with_profile(profiled).group_by("profile").agg(pl.len().cast(pl.Int64).alias("jobs"), *figures).sort("profile")


def duration_table(profiled: pl.DataFrame, limits: GroupLimits = GroupLimits()) -> pl.DataFrame:
    """Jobs per profile and duration."""
    return counted_by_profile(profiled.with_columns(duration(limits)), "duration", (*DURATIONS, "Unknown"))


def activity_table(profiled: pl.DataFrame, limits: GroupLimits = GroupLimits()) -> pl.DataFrame:
    """Distinct users per profile and activity over the whole log; a user of two profiles counts in both."""
    grouped = _with_profile(profiled).join(user_groups(profiled, limits).select("user", "activity"), on="user", how="inner")
    return counted_by_profile(grouped.unique(["profile", "user"]), "activity", ACTIVITIES)


def status_table(profiled: pl.DataFrame) -> pl.DataFrame:
    """Jobs per profile and what became of them."""
    return counted_by_profile(profiled.with_columns(label()), "label", LABELS)


def type_table(profiled: pl.DataFrame, limits: GroupLimits = GroupLimits()) -> pl.DataFrame:
    """Jobs per profile and type."""
    return counted_by_profile(profiled.with_columns(job_type(limits)), "job_type", (*JOB_TYPES, "Unknown"))


def counted_by_profile(frame: pl.DataFrame, group: str, values: tuple[str, ...]) -> pl.DataFrame:
    """Rows counted per profile (down) and group (across), every group a column even where it is empty."""
    value = pl.col(group).fill_null("Unknown")
    counts = [(value == wanted).sum().cast(pl.Int64).alias(wanted) for wanted in values]
    return _with_profile(frame).group_by("profile").agg(counts).sort("profile")


def _with_profile(profiled: pl.DataFrame) -> pl.DataFrame:
    return profiled.filter(pl.col("profile").is_not_null())


def _summary(profiled: pl.DataFrame) -> pl.DataFrame:
    """What a sentence about each profile needs."""
    cpu = pl.coalesce("cpu", "req_cpu")
    judged = pl.col("failed").is_not_null()
    figures = {
        "jobs": pl.len(),
        "cpu_low": cpu.quantile(0.1),
        "cpu_typical": cpu.median(),
        "cpu_high": cpu.quantile(0.9),
        "run_time_typical_s": pl.col("run_time_s").median(),
        "completed_share": (pl.col("state") == COMPLETED).filter(judged).mean(),
        "failed_share": pl.col("failed").mean(),
    }
    return _with_profile(profiled).group_by("profile").agg(**figures).cast(_SUMMARY).sort("profile")


def _matrix(frame: pl.DataFrame, columns: tuple[str, ...]) -> Floats:
    """(job, column), NaN where the frame does not tell."""
    values = np.full((frame.height, len(columns)), np.nan)
    for position, name in enumerate(columns):
        if name in frame.columns:
            values[:, position] = frame[name].cast(pl.Float64).to_numpy()  # null becomes NaN
    return values


def _kmeans(points: Floats, k: int, seed: int) -> Any:
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=4, random_state=seed).fit(points)


def _mixture(points: Floats, k: int, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(k, n_init=2, reg_covar=_VARIANCE_FLOOR, random_state=seed).fit(points)


def _curve(name: str, values: list[float]) -> pl.DataFrame:
    return pl.DataFrame({"k": range(1, len(values) + 1), name: values}, schema={"k": pl.Int64, name: pl.Float64})


def _read_state(path: Path) -> dict[str, Any]:
    state, _ = load_model(path.parent, kind=KIND, format_version=FORMAT_VERSION)
    missing = [name for name in (*_STATE, *_ARRAYS, "summary") if name not in state]
    if missing:
        raise _damaged(path, f"it lacks {', '.join(missing)}")
    return state


def _numbers(value: Any) -> list[float]:
    """Every number in a nest of lists and dictionaries."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in _numbers(part)]
    if isinstance(value, list | tuple):
        return [number for part in value for number in _numbers(part)]
    return [float(value)] if isinstance(value, int | float) else []


def _damaged(path: Path, why: str) -> ModelFormatError:
    return ModelFormatError(f"Job profiles at {path} cannot be used: {why}.", hint="Train them again.")


def _rank_label(value: float | None, all_values: pl.Series, labels: tuple[str, str, str]) -> str:
    """Where a value stands among all, on a log scale; no word where they differ by less than a factor of four."""
    known = np.maximum(all_values.drop_nulls().to_numpy(), 1.0)
    if value is None or len(known) < 2 or known.max() < 4 * known.min():
        return ""
    place = np.log(max(value, 1.0) / known.min()) / np.log(known.max() / known.min())
    return labels[min(2, int(3 * place))]


def _cpu_text(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    if round(low) == round(high):
        return f"{low:,.0f} CPU" + ("" if round(low) == 1 else "s")
    return f"{low:,.0f}–{high:,.0f} CPUs"


def _time_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    limits = ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, 3600.0, "h"), (np.inf, 86_400.0, "days"))
    amount, unit_name = next((seconds / unit, unit_name) for limit, unit, unit_name in limits if seconds < limit)
    return f"typically {amount:.0f} {unit_name}" if amount >= 10 else f"typically {amount:.2g} {unit_name}"


def _ending_text(completed: float | None, failed: float | None) -> str:
    if completed is None or failed is None:
        return ", of which the log does not tell how they ended"
    good = [term for limit, term in _COMPLETION_TERMS if completed >= limit]
    term = good[0] if good and failed < 0.1 else next(term for limit, term in _FAILURE_TERMS if failed < limit)
    return f" that {term} ({100 * failed:.1f} % fail)"


_GIB: Final = 2**30


def fit_request_profiles(
    jobs: pl.DataFrame, *, failure_states: tuple[str, ...] = tuple(DEFAULT_FAILURE_STATES), seed: int = 0
) -> JobProfiles:
    """The kinds of jobs by what they ask for; run times and outcomes only describe them."""
    settings = PreparationSettings(failure_states=failure_states, allocation_as_request=bool(stand_ins(jobs)))
    return JobProfiles(SUBMIT).fit(prepare(jobs, settings).frame, seed)


def with_profile(jobs: pl.DataFrame, profiles: JobProfiles, stand_in: dict[str, str] | None = None) -> pl.DataFrame:
    """The jobs with the columns of `with_request`, and `profile`: null where nothing is known of the request."""
    requests = with_request(jobs, stand_ins(jobs) if stand_in is None else stand_in)
    # Column by column: for a few jobs the plan of a query would cost more than the work.
    request = pl.DataFrame(
        {
            "req_cpu": requests["asked_cpus"].cast(pl.Float64),
            "req_node": requests["asked_nodes"].cast(pl.Float64),
            "req_mem_gb": requests["req_mem_bytes"] / _GIB,
            "time_limit_s": requests["time_limit_s"],
        }
    )
    profile = profiles.assign(request).cast(pl.Int64).alias("profile")
    return requests.clone().replace_column(requests.get_column_index("profile"), profile)
