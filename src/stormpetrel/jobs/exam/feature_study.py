"""Which features earn their place: correlation, importance, and what is lost without each group.

feature matrix, names, groups, outcomes -> correlations, importance, ablation -> which_to_keep: verdict and reason per feature.

Matrices are float32, jobs × features, with NaN where the log is silent; a group is what is gathered together (`history`,
`request`, `calendar`), since features of one group stand in for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.engine import Progress as ShareProgress
from stormpetrel.errors import UsageError
from stormpetrel.jobs.exam.resampling import Truth
from stormpetrel.jobs.exam.seed_models import threads
from stormpetrel.learn.lean_imports import classifier_class
from stormpetrel.learn.metrics import pr_auc, roc_auc
from stormpetrel.records.arrays import Floats, Matrix

Progress = Callable[[str, int, int], None]

OUTCOME: Final = "failed"
TRAIN_SHARE: Final = 0.75
COPY: Final = 0.995  # |r| from which one feature says what another says
ADDS: Final = 0.001  # PR that a group has to add to be worth keeping
_UNUSED: Final = 1e-4  # share of the whole mean |SHAP|
_TREES: Final = 120
_STRETCHES: Final = 20
_DRAWS: Final = 40


@dataclass(frozen=True, slots=True)
class Correlations:
    """How features hang together with the outcome, and with each other.

    `table` has feature, pearson, spearman (both with having failed; null for a constant) and missing (share), strongest
    first; `matrix` has a row and a column for the outcome and each feature, in the order of `names`, NaN for constants.
    """

    table: pl.DataFrame
    names: tuple[str, ...]
    matrix: Floats

    def top(self, n: int = 20) -> tuple[tuple[str, ...], Floats]:
        """Names and matrix of the outcome and the n features that hang together with it most (Fig. 9)."""
        strongest = self.table.filter(pl.col("pearson").is_not_null())["feature"].head(n)
        chosen = [0, *(self.names.index(name) for name in strongest)]
        return tuple(self.names[position] for position in chosen), self.matrix[np.ix_(chosen, chosen)]


@dataclass(frozen=True, slots=True)
class Ablation:
    """What a model loses without a group, and what it can do with that group alone.

    `roc_auc` and `pr_auc` are those with all features; `groups` has group, features (how many), roc_lost, pr_lost, pr_error (the
    standard error of pr_lost, from resampled stretches of time), roc_alone, pr_alone, the greatest loss first.
    """

    roc_auc: float
    pr_auc: float
    groups: pl.DataFrame


def correlations(x: Matrix, names: Sequence[str], y: Truth, *, sample: int = 20_000, seed: int = 0) -> Correlations:
    """Pearson's correlation with the outcome on all jobs; Spearman's, and the matrix of all features, on a sample.

    Each is taken over the jobs that have both values.
    """
    _check(x, names, y)
    drawn = _drawn(len(y), sample, seed)
    some, outcome = x[drawn].astype(np.float64), y[drawn].astype(np.float64)
    lacking = np.isnan(x).mean(axis=0) if len(y) else np.ones(len(names))
    rows = [
        (name, _pearson(x[:, column], y), _spearman(some[:, column], outcome), float(lacking[column]))
        for column, name in enumerate(names)
    ]
    schema = {"feature": pl.String, "pearson": pl.Float64, "spearman": pl.Float64, "missing": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row").sort(pl.col("pearson").abs(), descending=True, nulls_last=True)
    return Correlations(table, (OUTCOME, *names), _pairwise(np.column_stack([outcome, some])))


def importance(
    x: Matrix, names: Sequence[str], y: Truth, *, sample: int = 5_000, max_rows: int = 100_000, seed: int = 0
) -> pl.DataFrame:
    """feature, total_gain and mean_abs_shap (log-odds) of an XGBoost model, most important first.

    SHAP values are exact (TreeSHAP), of a sample of jobs; the model is fitted on at most `max_rows` jobs.
    """
    _check(x, names, y)
    from xgboost import DMatrix

    fitted = _drawn(len(y), max_rows, seed)
    booster = _fitted(x[fitted], y[fitted], seed).get_booster()
    gain = booster.get_score(importance_type="total_gain")
    parts = booster.predict(DMatrix(x[_drawn(len(y), sample, seed + 1)]), pred_contribs=True)  # (jobs, features + bias)
    return pl.DataFrame(
        {
            "feature": list(names),
            "total_gain": [float(gain.get(f"f{column}", 0.0)) for column in range(len(names))],
            "mean_abs_shap": np.abs(parts[:, :-1]).mean(axis=0, dtype=np.float64),
        }
    ).sort("mean_abs_shap", "total_gain", descending=True)


def ablation(
    x: Matrix,
    names: Sequence[str],
    groups: Mapping[str, str],
    y: Truth,
    *,
    max_rows: int = 60_000,
    seed: int = 0,
    progress: Progress | None = None,
    engine: Engine = ONE_PROCESS,
) -> Ablation:
    """Fit without each group and with each group alone on the first 75 % of the jobs, and judge on the rest.

    The rows stand in the order of submission; with more than `max_rows` jobs, so many are drawn, and keep their order. Each group
    is one item of the engine.
    """
    _check(x, names, y)
    kept = _drawn(len(y), max_rows, seed)
    x, y = x[kept], y[kept]
    cut = round(TRAIN_SHARE * len(y))
    for part, truth in (("first 75 %", y[:cut]), ("last 25 %", y[cut:])):
        if truth.all() or not truth.any():
            raise UsageError(
                f"The {part} of the {len(y)} jobs all have the same outcome, so features cannot be judged on them.",
                hint="Take a longer log, or count other states as failures (--failed).",
            )
    of_group = np.array([groups.get(name, name) for name in names])
    named = list(dict.fromkeys(of_group.tolist()))
    truth, whole = y[cut:], _forecast(x, y, cut, seed)

    def report_progress(share: float, group: str) -> None:
        if progress is not None:
            progress(group, round(share * len(named)), len(named))

    rows = list(engine.map(_GroupAblation(x, y, of_group, cut, whole, seed), named, progress=report_progress))
    report_progress(1.0, "")
    columns = ["group", "features", "roc_lost", "pr_lost", "pr_error", "roc_alone", "pr_alone"]
    return Ablation(*_areas(truth, whole), pl.DataFrame(rows, schema=columns, orient="row").sort("pr_lost", descending=True))


@dataclass(frozen=True, slots=True)
class _GroupAblation:
    """Fits without a group and with that group alone; the row of the group in `Ablation.groups`."""

    x: Matrix
    y: Truth
    of_group: npt.NDArray[np.str_]  # of each feature
    cut: int
    whole: Floats  # forecast with all features
    seed: int

    def __call__(self, group: str, _progress: ShareProgress) -> tuple[str | float, ...]:
        """group, features, roc_lost, pr_lost, pr_error, roc_alone, pr_alone."""
        inside, truth = self.of_group == group, self.y[self.cut :]
        without, alone = (_forecast(self.x[:, kept], self.y, self.cut, self.seed) for kept in (~inside, inside))
        lost = np.subtract(_areas(truth, self.whole), _areas(truth, without))
        error = _error(truth, self.whole, without, self.seed)
        return group, int(inside.sum()), *lost.tolist(), error, *_areas(truth, alone)


def which_to_keep(
    correlated: Correlations, important: pl.DataFrame, ablated: Ablation, groups: Mapping[str, str], *, adds: float = ADDS
) -> pl.DataFrame:
    """feature, group, verdict (`keep` or `drop`) and the reason in words, most important features first.

    A feature goes if it is constant, if a more important one says the same, if the model makes no use of it, or if its
    whole group can go without a loss of PR of at least `adds` and one standard error.
    """
    lost = {
        group: (loss, max(adds, error))
        for group, loss, error in ablated.groups.select("group", "pr_lost", "pr_error").iter_rows()
    }
    missing = dict(correlated.table.select("feature", "missing").iter_rows())
    used = float(important["mean_abs_shap"].sum()) * _UNUSED
    rows: list[tuple[str, str, str, str]] = []
    kept: list[str] = []
    for feature, shap in important.select("feature", "mean_abs_shap").iter_rows():
        group = groups.get(feature, feature)
        reason = _why_drop(feature, missing[feature], correlated, kept) or _without_use(shap, used, *lost[group])
        if not reason:
            kept.append(feature)
        whole = "" if group == feature else f" (with its group, {group})"
        rows.append((feature, group, "drop" if reason else "keep", reason or f"adds {digits(lost[group][0])} PR{whole}"))
    return pl.DataFrame(rows, schema=["feature", "group", "verdict", "reason"], orient="row")


def digits(value: float) -> str:
    """A share to three digits, without the leading zero: .012."""
    return f"{value:.3f}".replace("0.", ".", 1)


def _why_drop(feature: str, missing: float, correlated: Correlations, kept: list[str]) -> str:
    """Reasons that need no model; empty if there are none."""
    if missing == 1.0:
        return "never known in this log"
    row = correlated.matrix[correlated.names.index(feature)]
    if np.isnan(row[correlated.names.index(feature)]):
        return "constant in this log"
    for other in kept:
        r = row[correlated.names.index(other)]
        if abs(r) >= COPY:
            return f"a copy of {other} (r = {r:.2f})"
    return ""


def _without_use(shap: float, used: float, lost: float, least: float) -> str:
    """Reasons that a model gives; a loss below `least` is none."""
    if shap <= used:
        return "the model makes no use of it"
    if lost >= least:
        return ""
    return f"better by {digits(-lost)} PR without it" if lost <= -least else "nothing lost without it"


def _fitted(x: Matrix, y: Truth, seed: int) -> Any:
    model = classifier_class()(
        n_estimators=_TREES,
        max_depth=6,
        learning_rate=0.1,
        subsample=0.8,
        tree_method="hist",
        n_jobs=threads(len(y)),
        random_state=seed,
    )
    return model.fit(x, y)


def _forecast(x: Matrix, y: Truth, cut: int, seed: int) -> Floats:
    """What a model of the first `cut` rows says of the others; nothing, without any feature."""
    if x.shape[1] == 0:
        return np.zeros(len(y) - cut)
    return np.asarray(_fitted(x[:cut], y[:cut], seed).predict_proba(x[cut:])[:, 1], dtype=np.float64)


def _areas(truth: Truth, probability: Floats) -> tuple[float, float]:
    return roc_auc(truth, probability) or 0.0, pr_auc(truth, probability) or 0.0


def _error(truth: Truth, whole: Floats, without: Floats, seed: int) -> float:
    """Standard error of the PR lost: failures come in waves, so whole stretches of time are drawn, and not single jobs."""
    rng = np.random.default_rng(seed)
    stretches = np.array_split(np.arange(truth.size), min(_STRETCHES, truth.size))
    losses = []
    for _ in range(_DRAWS):
        rows = np.concatenate([stretches[place] for place in rng.integers(len(stretches), size=len(stretches))])
        losses.append((pr_auc(truth[rows], whole[rows]) or 0.0) - (pr_auc(truth[rows], without[rows]) or 0.0))
    return float(np.std(losses))


def _pearson(values: npt.NDArray[Any], outcome: npt.NDArray[Any]) -> float | None:
    known = ~np.isnan(values)
    both = np.stack([values[known], outcome[known]]).astype(np.float64)
    both -= both.mean(axis=1, keepdims=True) if known.any() else 0.0
    size = float(np.sqrt(np.prod(np.sum(both**2, axis=1))))
    return float(both[0] @ both[1] / size) if size > 0 else None


def _spearman(values: Floats, outcome: Floats) -> float | None:
    known = ~np.isnan(values)
    return _pearson(_ranks(values[known]), _ranks(outcome[known]))


def _ranks(values: Floats) -> Floats:
    return pl.Series(values).rank("average").to_numpy().astype(np.float64)


def _pairwise(x: Floats) -> Floats:
    """Correlations of all pairs of columns, each over the rows that have both; NaN where one of the two is constant there."""
    known = ~np.isnan(x)
    count = known.sum(axis=0)
    middle = np.divide(np.where(known, x, 0.0).sum(axis=0), count, out=np.zeros(x.shape[1]), where=count > 0)
    spread = np.sqrt(np.where(known, (x - middle) ** 2, 0.0).sum(axis=0) / np.maximum(count, 1))
    z = np.where(known, x - middle, 0.0) / np.where(spread > 0, spread, 1.0)
    seen = known.astype(np.float64)
    n = np.maximum(seen.T @ seen, 1.0)
    mean = z.T @ seen / n  # of column i, over the rows that have j as well
    variance = np.maximum((z**2).T @ seen / n - mean**2, 0.0)
    product = z.T @ z / n - mean * mean.T
    size = np.sqrt(variance * variance.T)
    matrix: Floats = np.divide(product, size, out=np.full_like(product, np.nan), where=size > 1e-9).clip(-1.0, 1.0)
    return matrix


def _drawn(rows: int, most: int, seed: int) -> npt.NDArray[np.intp]:
    """Positions of at most so many rows, in their order."""
    return np.arange(rows) if rows <= most else np.sort(np.random.default_rng(seed).permutation(rows)[:most])


def _check(x: Matrix, names: Sequence[str], y: Truth) -> None:
    if x.shape != (len(y), len(names)):
        raise UsageError(
            f"The feature matrix is {x.shape[0]} × {x.shape[1]}, with {len(names)} names and {len(y)} outcomes.",
            hint="Give one name per column and one outcome per row.",
        )
