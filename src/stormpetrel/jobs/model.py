"""The outcome model of one moment: how likely a job is to fail, and in which way.

FeatureMatrix + labels -> fit -> JobOutcomeModel -> predict_proba -> OutcomeFrame.

Two sets of trees. The first says whether the job fails. The second is fitted on jobs that did not complete and says how such
a job goes wrong; the probability of an outcome is the risk times its share. XGBoost, heavily regularised: the settings were
chosen on the first 60 % of public logs (docs/log.md), never on the rows that the figures in the docs are measured on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import ModelFormatError, NotEnoughJobsError
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.outcomes import COMPLETED, OUTCOMES
from stormpetrel.jobs.prior.trees import joined_trees
from stormpetrel.jobs.tree_file import checked_trees, leaf_table
from stormpetrel.learn.leaf_tables import LeafTable
from stormpetrel.learn.saving import load_model, save_model
from stormpetrel.learn.threads import threads, wait_politely

if TYPE_CHECKING:
    import xgboost

FORMAT_VERSION: Final = 1
KIND: Final = "job-outcome"
FEWEST_OF_A_CLASS: Final = 10
FEWEST_OF_AN_OUTCOME: Final = 20
SMALLEST_LEAF: Final = 50.0
_RISK_TREES: Final = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_depth": 6,
    "eta": 0.05,
    "subsample": 0.7,
    "colsample_bytree": 0.3,
    "min_child_weight": SMALLEST_LEAF,
    "reg_lambda": 10.0,
    "max_bin": 128,
}
_KIND_TREES: Final = {**_RISK_TREES, "objective": "multi:softprob", "max_depth": 4, "min_child_weight": 10, "eta": 0.1}
ROUNDS: Final = 150
KIND_ROUNDS: Final = 60
_FEW_ROWS: Final = 512


@dataclass(frozen=True, slots=True)
class Explained:
    """Why the risk of some jobs is what it is: exact TreeSHAP contributions, in log-odds."""

    names: tuple[str, ...]
    contributions: NDArray[np.float32]  # (job, feature)
    base: float  # log-odds before anything is known about the job


@dataclass(frozen=True, slots=True)
class Beginning:
    """Trees that a model begins with (as `risk_trees` gives them, of the same features), and how much its own count then."""

    trees: str
    weight: float


@dataclass
class JobOutcomeModel:
    """How likely a job is to fail at one moment, and in which way."""

    moment: Moment
    rounds: int = ROUNDS
    depth: int = 6  # of the trees that tell the risk
    seed: int = 0
    threshold: float = 0.5
    metadata: dict[str, Any] = field(default_factory=dict)
    names_: tuple[str, ...] = ()
    outcomes_: tuple[str, ...] = ()
    failure_outcomes_: tuple[str, ...] = ()
    outcome_shares_: tuple[float, ...] = ()  # of the training jobs; used where no trees tell the outcomes apart
    failed_share_: float = 0.0
    n_train_: int = 0
    _threads = 0  # that the trees use now; 0: as they were made
    _leaves: tuple[LeafTable, LeafTable | None] | None = None  # in place of the trees: XGBoost is not imported

    def fit(
        self, features: FeatureMatrix, failed: NDArray[np.bool_], outcome: pl.Series, *, begin: Beginning | None = None
    ) -> Self:
        """Learn from jobs whose end is known: `failed`, and `outcome` in the words of `outcomes` (null where none)."""
        self.fit_risk(features, failed, begin=begin)
        self._fit_kinds(features, failed, outcome)
        return self

    def fit_risk(self, features: FeatureMatrix, failed: NDArray[np.bool_], *, begin: Beginning | None = None) -> Self:
        """Learn whether jobs fail, and not how: enough for `risk`, in half the time.

        With `begin` only what those trees leave over is learnt.
        """
        wait_politely()
        import xgboost

        self._refuse_too_few(failed)
        self.names_ = features.names
        self.failed_share_ = float(failed.mean())
        self.n_train_ = int(failed.size)
        few = min(int(failed.sum()), int((~failed).sum()))
        # Small logs: a leaf may not demand more jobs than there are of the rarer class.
        weight = min(SMALLEST_LEAF, max(1.0, few / 20))
        trees = None if begin is None else _loaded(begin.trees)
        table = xgboost.QuantileDMatrix(
            features.values,
            failed.astype(np.float32),
            base_margin=None if trees is None else trees.inplace_predict(features.values, predict_type="margin"),
            max_bin=128,
            nthread=threads(),
        )
        chosen = {"max_depth": self.depth, "min_child_weight": weight, "seed": self.seed, "nthread": threads()}
        self._risk: xgboost.Booster = xgboost.train({**_RISK_TREES, **chosen}, table, self.rounds)
        if begin is not None:
            self._risk = _loaded(joined_trees(begin.trees, self.risk_trees(), weight=begin.weight))
        self._kinds: xgboost.Booster | None = None
        return self

    def risk_trees(self) -> str:
        """The trees that tell the risk, as XGBoost writes them."""
        return self._risk.save_raw("json").decode()

    def _refuse_too_few(self, failed: NDArray[np.bool_]) -> None:
        bad, good = int(failed.sum()), int((~failed).sum())
        if min(bad, good) < FEWEST_OF_A_CLASS:
            raise NotEnoughJobsError(
                f"{failed.size} ended jobs, {bad} of them failed: too few to learn from at '{self.moment}' "
                f"(at least {FEWEST_OF_A_CLASS} of each are needed).",
                hint="Ingest more jobs, or say with jobs.failure_states (--failed) which states count as a failure.",
            )

    def _fit_kinds(self, features: FeatureMatrix, failed: NDArray[np.bool_], outcome: pl.Series) -> None:
        import xgboost

        counts = {name: int((outcome == name).sum()) for name in OUTCOMES}
        common = [name for name in OUTCOMES if counts[name] >= FEWEST_OF_AN_OUTCOME]
        fails = [name for name in common if bool(failed[(outcome == name).fill_null(False).to_numpy()].any())]
        self._kinds = None
        if not fails:  # every kind of failure is too rare to be distinguished: a failure is a failure
            fails, common = ["FAILED"], ["FAILED", *(name for name in common if name != "FAILED")]
            counts["FAILED"] = int(failed.sum())
        self.outcomes_, self.failure_outcomes_ = tuple(common), tuple(fails)
        self.outcome_shares_ = tuple(counts[name] / max(1, sum(counts[n] for n in common)) for name in common)
        if len(common) < 2 or any(int((outcome == name).sum()) < FEWEST_OF_AN_OUTCOME for name in common):
            return
        rows = outcome.is_in(common).fill_null(False).to_numpy()
        label = outcome.filter(pl.Series(rows)).replace_strict(common, list(range(len(common))), return_dtype=pl.Int32)
        table = xgboost.QuantileDMatrix(features.values[rows], label.to_numpy(), max_bin=128, nthread=threads())
        settings = {**_KIND_TREES, "num_class": len(common), "seed": self.seed, "nthread": threads()}
        self._kinds = xgboost.train(settings, table, KIND_ROUNDS)

    def risk(self, features: FeatureMatrix) -> NDArray[np.float64]:
        """The probability that each job fails."""
        values = self._checked(features)
        if not len(values):
            return np.empty(0)
        if self._leaves is not None:
            return np.asarray(1.0 / (1.0 + np.exp(-self._leaves[0].margins(values)[:, 0])))
        return np.asarray(self._predict_margin(self._risk, values), dtype=np.float64)

    def predict_proba(self, features: FeatureMatrix) -> pl.DataFrame:
        """The outcome frame: `risk`, one column per outcome (`p_TIMEOUT`, …), `p_COMPLETED`, and `known`.

        `known` is false where the user or the application has no ended job yet: the risk is the habit of jobs that look alike.
        """
        features = features.aligned(self.names_)
        risk = self.risk(features)
        shares = self._shares(features.values)
        fails = np.array([name in self.failure_outcomes_ for name in self.outcomes_], dtype=bool)
        columns: dict[str, NDArray[Any]] = {"risk": risk}
        total = shares[:, fails].sum(axis=1)
        rest = 1.0 - risk
        for position, name in enumerate(self.outcomes_):
            part = np.divide(shares[:, position], total, out=np.zeros(len(risk)), where=total > 1e-6)
            # An outcome that is no failure (a cancelled job, say) is as likely, against a failure, as its share against theirs.
            columns[f"p_{name}"] = risk * part if fails[position] else np.minimum(risk * part, rest)
        others = sum((columns[f"p_{n}"] for n, bad in zip(self.outcomes_, fails, strict=True) if not bad), np.zeros(len(risk)))
        scale = np.minimum(1.0, np.divide(rest, others, out=np.ones(len(risk)), where=others > 1e-12))
        for name, bad in zip(self.outcomes_, fails, strict=True):
            if not bad:
                columns[f"p_{name}"] = columns[f"p_{name}"] * scale
        columns[f"p_{COMPLETED}"] = rest - np.minimum(others, rest)
        columns["known"] = self._known(features)
        return pl.DataFrame(columns)

    def _predict_margin(self, trees: xgboost.Booster, values: NDArray[np.float32]) -> Any:
        """What the trees say; a few rows on one thread, since waking others costs more, above all where cores are busy."""
        wanted = 1 if len(values) < _FEW_ROWS else threads()
        if wanted != self._threads:
            for both in (self._risk, self._kinds):
                if both is not None:
                    both.set_param({"nthread": wanted})
            self._threads = wanted
        return trees.inplace_predict(values)

    def _shares(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        if self._leaves is not None and self._leaves[1] is not None:
            margins = self._leaves[1].margins(values)
            odds = np.exp(margins - margins.max(axis=1, keepdims=True, initial=-np.inf))
            return np.asarray(odds / odds.sum(axis=1, keepdims=True))
        if self._kinds is None or not len(values):
            return np.tile(np.array(self.outcome_shares_), (len(values), 1))
        return np.asarray(self._predict_margin(self._kinds, values), dtype=np.float64).reshape(len(values), -1)

    def _known(self, features: FeatureMatrix) -> NDArray[np.bool_]:
        ended = {name: features.values[:, features.names.index(name)] for name in ("user.ended_total", "family.ended_30d")}
        new_application = ended["family.ended_30d"] == 0  # NaN where the log names no applications
        known: NDArray[np.bool_] = (np.nan_to_num(ended["user.ended_total"]) > 0) & ~new_application
        return known

    def explain(self, features: FeatureMatrix) -> Explained:
        """Exact TreeSHAP contributions of every feature to the log-odds of failing."""
        values = self._checked(features)
        if not len(values):
            return Explained(self.names_, np.empty((0, len(self.names_)), dtype=np.float32), 0.0)
        if self._leaves is not None:
            contributions, base = self._leaves[0].contributions(values)
            return Explained(self.names_, contributions.astype(np.float32), base)
        import xgboost

        raw = self._risk.predict(xgboost.DMatrix(values, nthread=1 if len(values) < 64 else threads()), pred_contribs=True)
        return Explained(self.names_, raw[:, :-1], float(raw[0, -1]))

    def importance(self, features: FeatureMatrix) -> pl.DataFrame:
        """How much each feature matters: its share of the trees' `gain`, and `mean_abs_shap` on these jobs, most first."""
        shap = np.abs(self.explain(features).contributions)
        mean = shap.mean(axis=0) if len(shap) else np.zeros(len(self.names_))
        gain = self._risk.get_score(importance_type="total_gain")
        named = {self.names_[int(key[1:])]: float(np.sum(value)) for key, value in gain.items()}
        shares = [named.get(name, 0.0) / max(1e-12, sum(named.values())) for name in self.names_]
        frame = pl.DataFrame({"feature": self.names_, "gain": shares, "mean_abs_shap": mean})
        return frame.sort("mean_abs_shap", descending=True)

    def _checked(self, features: FeatureMatrix) -> NDArray[np.float32]:
        features = features.aligned(self.names_)
        if features.names != self.names_:
            missing = [name for name in self.names_ if name not in features.names]
            raise ModelFormatError(
                f"This model of '{self.moment}' was trained on other columns than these"
                + (f" (missing: {', '.join(missing[:3])}{', …' if len(missing) > 3 else ''})." if missing else "."),
                hint="Train it again on this site's jobs: stormpetrel jobs train",
            )
        return features.values

    def _refuse_absurd(self) -> None:
        """Raise ValueError for a record that no training writes."""
        sound = (
            0.0 <= self.threshold <= 1.0
            and 0.0 <= self.failed_share_ <= 1.0
            and self.n_train_ >= 0
            and self.rounds >= 1
            and 1 <= len(self.outcomes_) == len(self.outcome_shares_)
            and set(self.outcomes_) <= set(OUTCOMES)
            and bool(self.failure_outcomes_)
            and set(self.failure_outcomes_) <= set(self.outcomes_)
            and all(0.0 <= share <= 1.0 for share in self.outcome_shares_)
        )
        if not sound:
            raise ValueError("its record holds values that make no sense")

    def save(self, folder: Path) -> None:
        """Write the model to a new folder."""
        files = {"risk.json": self.risk_trees()}
        if self._kinds is not None:
            files["kinds.json"] = self._kinds.save_raw("json").decode()
        record = {
            "moment": str(self.moment),
            "features": list(self.names_),
            "outcomes": list(self.outcomes_),
            "failure_outcomes": list(self.failure_outcomes_),
            "outcome_shares": list(self.outcome_shares_),
            "tells_outcomes_apart": self._kinds is not None,
            "failed_share": self.failed_share_,
            "n_train": self.n_train_,
            "rounds": self.rounds,
            "seed": self.seed,
            "threshold": self.threshold,
            "about": self.metadata,
        }
        save_model(folder, kind=KIND, format_version=FORMAT_VERSION, metadata=record, files=files)

    @classmethod
    def load(cls, folder: Path, *, few: bool = False) -> Self:
        """Read a model that `save` wrote; ModelFormatError where it is damaged or for another version.

        With `few` it is for a few rows, and for forecasts and reasons alone: XGBoost is not imported.
        """
        record, files = load_model(folder, kind=KIND, format_version=FORMAT_VERSION)
        try:
            model = cls(
                moment=Moment(record["moment"]),
                rounds=int(record["rounds"]),
                seed=int(record["seed"]),
                threshold=float(record["threshold"]),
                metadata=dict(record["about"]),
                names_=tuple(map(str, record["features"])),
                outcomes_=tuple(map(str, record["outcomes"])),
                failure_outcomes_=tuple(map(str, record["failure_outcomes"])),
                outcome_shares_=tuple(map(float, record["outcome_shares"])),
                failed_share_=float(record["failed_share"]),
                n_train_=int(record["n_train"]),
            )
            model._refuse_absurd()
            features, kinds = len(model.names_), len(model.outcomes_)
            if record["tells_outcomes_apart"] and kinds < 2:
                raise ValueError("its record tells apart one outcome")
            apart = bool(record["tells_outcomes_apart"])
            model._kinds = None
            if few:
                risk = leaf_table(files["risk.json"], features=features, outputs=1)
                model._leaves = risk, leaf_table(files["kinds.json"], features=features, outputs=kinds) if apart else None
                return model
            model._risk = _booster(files["risk.json"], features, outputs=1)
            model._kinds = _booster(files["kinds.json"], features, outputs=kinds) if apart else None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelFormatError(
                f"The model in {folder} is damaged: {error}", hint="Train it again: stormpetrel jobs train"
            ) from None
        return model


def _booster(text: str, features: int, *, outputs: int) -> xgboost.Booster:
    return _loaded(checked_trees(text, features=features, outputs=outputs))


def _loaded(checked: str) -> xgboost.Booster:
    """The trees of a text that was checked, or that comes from trees in memory."""
    wait_politely()
    import xgboost

    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(checked.encode()))
    except xgboost.core.XGBoostError as error:
        raise ValueError(str(error).splitlines()[0]) from None
    booster.set_param({"nthread": threads()})
    return booster
