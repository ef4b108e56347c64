"""Files of trees: what ours say reaches XGBoost unchanged, and no file, whatever its digest, ends the process."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import TrainingSettings, fit_at, label_jobs
from stormpetrel.jobs.tree_file import checked_trees
from tests.jobs.logs import make_log, one_thread, sealed

HOSTILE = [
    -1, -2, 0, 1, 3, 99, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63, 10**400, 0.5, -0.0, 1e39, 1e308, float("nan"), float("inf"),
    None, True, "", "-1", "4294967295", "1e999", "nan", "[1,2,3]", "[", [], {}, [[]], [0] * 500, {"x": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model with trees for the risk and for the kinds, in its folder, and the features it learnt from."""
    with one_thread():
        settings = TrainingSettings(rounds=5)
        labelled = label_jobs(make_log(400, 1, cancelled=0.2), settings, [Moment.SUBMIT])
        model = fit_at(labelled, Moment.SUBMIT, labelled.reached(Moment.SUBMIT), settings)
        folder = tmp_path_factory.mktemp("models") / "saved"
        model.save(folder)
        yield folder, model, labelled.features[Moment.SUBMIT]


def trees(text: str) -> list[dict[str, Any]]:
    return json.loads(text)["learner"]["gradient_booster"]["model"]["trees"]


def write_model(folder, saved_folder, name, text):
    """A copy of a model with other trees, and digests that are right."""
    folder.mkdir(parents=True)
    record = json.loads((saved_folder / "model.json").read_text())
    for file in record["files"]:
        content = text.encode() if file == name else (saved_folder / file).read_bytes()
        (folder / file).write_bytes(content)
        record["files"][file] = hashlib.sha256(content).hexdigest()
    (folder / "model.json").write_text(json.dumps(sealed(record)))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a JSON document; of a long list, to some of its values."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:40]) if isinstance(value, list) else ()
    return [path, *(place for key, part in inside for place in places(part, (*path, key)))]


def tampered(text: str, rng: random.Random) -> str:
    """The file with one to three of its values replaced, left out, moved or doubled; or with other whole numbers in a tree."""
    told = json.loads(text)
    if rng.random() < 0.5:
        tree = rng.choice(told["learner"]["gradient_booster"]["model"]["trees"])
        for _ in range(3):
            numbers = tree[rng.choice(["left_children", "right_children", "split_indices", "parents", "split_type"])]
            numbers[rng.randrange(len(numbers))] = rng.choice([*range(12), 10_000, 2_000_000, 2**31 - 2])
        return json.dumps(told)
    for _ in range(rng.choice([1, 1, 2, 3])):
        *way, last = rng.choice(places(told)[1:])
        holder = told
        for key in way:
            holder = holder[key]
        match rng.randrange(6):
            case 0:
                del holder[last]
            case 1 if isinstance(holder, list):
                holder.insert(last, copy.deepcopy(holder[last]))
            case 2 if isinstance(holder, list):
                other = rng.randrange(len(holder))
                holder[last], holder[other] = holder[other], holder[last]
            case 3 if isinstance(holder[last], int | float):
                holder[last] = rng.randrange(-3, 60)
            case _:
                holder[last] = rng.choice(HOSTILE)
    return json.dumps(told)


_TRY = """
import sys
from pathlib import Path
import numpy as np
from stormpetrel.errors import ModelFormatError
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import Moment

values = np.load(sys.argv[2])
for folder in sorted(Path(sys.argv[1]).iterdir()):
    print(folder.name, end=" ", flush=True)
    try:
        model = JobOutcomeModel.load(folder)
    except ModelFormatError as error:
        assert "\\n" not in str(error), error
        print("refused", flush=True)
        continue
    features = FeatureMatrix(Moment.SUBMIT, model.names_, values)
    model.predict_proba(features)
    model.explain(features)
    model.importance(features)
    print("harmless", flush=True)
"""


@pytest.mark.parametrize(("seed", "fuzzed"), [(16, 40), pytest.param(17, 300, marks=pytest.mark.slow)])
def test_tampered_trees_are_refused_or_harmless_and_never_end_the_process(saved, tmp_path, seed, fuzzed):
    folder, _, features = saved
    rng = random.Random(seed)
    for number in range(fuzzed):
        name = rng.choice(["risk.json", "kinds.json"])
        write_model(tmp_path / "fuzzed" / f"{number:04d}", folder, name, tampered((folder / name).read_text(), rng))
    np.save(tmp_path / "values.npy", features.values[:20])
    words = [sys.executable, "-c", _TRY, str(tmp_path / "fuzzed"), str(tmp_path / "values.npy")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    answers = [line.split()[1] for line in done.stdout.splitlines() if " " in line.strip()]
    assert (done.returncode, len(answers)) == (0, fuzzed), f"at {done.stdout[-40:]!r}: {done.stderr[-500:]}"
    assert answers.count("refused") > fuzzed / 3 and answers.count("harmless") > 5


def test_checked_trees_predict_and_explain_as_the_ones_that_were_trained(saved):
    folder, model, features = saved
    again = JobOutcomeModel.load(folder)
    assert again.predict_proba(features).equals(model.predict_proba(features))
    np.testing.assert_array_equal(again.explain(features).contributions, model.explain(features).contributions)


def test_leaves_say_what_xgboost_says_of_missing_values_and_of_values_on_a_threshold(saved):
    folder, model, features = saved
    few = JobOutcomeModel.load(folder, few=True)
    values = features.values[:40].copy()
    values[::3, ::2] = np.nan
    tree = trees((folder / "risk.json").read_text())[0]
    values[1::3, tree["split_indices"][0]] = np.float32(tree["split_conditions"][0])  # on the threshold is right of it
    rows = FeatureMatrix(Moment.SUBMIT, features.names, values)
    forecast, wanted = few.predict_proba(rows), model.predict_proba(rows)
    assert forecast.columns == wanted.columns
    np.testing.assert_allclose(forecast.to_numpy().astype(float), wanted.to_numpy().astype(float), rtol=0, atol=1e-6)
    explained, told = few.explain(rows), model.explain(rows)
    np.testing.assert_allclose(explained.contributions, told.contributions, rtol=0, atol=1e-5)
    assert explained.base == pytest.approx(told.base, abs=1e-5)
    np.testing.assert_allclose(
        explained.base + explained.contributions.sum(axis=1), np.log(forecast["risk"] / (1 - forecast["risk"])), atol=1e-5
    )
    assert len(few.explain(rows.rows(np.empty(0, np.int64))).contributions) == 0


def spoil_child(tree):
    tree["left_children"][0] = len(tree["left_children"])


def spoil_cycle(tree):
    inner = next(node for node, left in enumerate(tree["left_children"]) if left > 0 and node > 0)
    tree["left_children"][inner] = inner
    tree["parents"][inner] = inner


def spoil_feature(tree):
    tree["split_indices"][0] = 1_000_000


def spoil_length(tree):
    tree["split_conditions"].pop()


def spoil_number(tree):
    tree["split_conditions"][0] = float("nan")


def spoil_category(tree):
    tree["split_type"][0] = 1


def spoil_count(tree):
    tree["tree_param"]["num_nodes"] = "2000000000"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (spoil_child, "a child that is not there"),
        (spoil_cycle, "do not hang together"),
        (spoil_feature, "a feature that is not there"),
        (spoil_length, "another length"),
        (spoil_number, "a number that none of ours has"),
        (spoil_category, "by categories"),
        (spoil_count, "another length"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_kind_of_damage_has_its_sentence(saved, tmp_path, spoil, why):
    folder = saved[0]
    told = json.loads((folder / "risk.json").read_text())
    spoil(told["learner"]["gradient_booster"]["model"]["trees"][0])
    write_model(tmp_path / "spoilt", folder, "risk.json", json.dumps(told))
    with pytest.raises(ModelFormatError, match=why) as caught:
        JobOutcomeModel.load(tmp_path / "spoilt")
    assert "\n" not in str(caught.value)


def test_a_circle_beside_the_tree_is_refused(saved):
    """Every node has one parent, and yet two of them are each other's: XGBoost would never come back from there."""
    told = json.loads((saved[0] / "risk.json").read_text())
    features = len(saved[1].names_)
    tree = told["learner"]["gradient_booster"]["model"]["trees"][0]
    lists = {name: values for name, values in tree.items() if isinstance(values, list) and values}
    size = len(tree["left_children"])
    for values in lists.values():
        values += [values[-1]] * 4
    for node, (left, right, parent) in enumerate(
        [(size + 1, size + 2, size + 1), (size, size + 3, size), (-1, -1, size), (-1, -1, size + 1)], start=size
    ):
        tree["left_children"][node], tree["right_children"][node], tree["parents"][node] = left, right, parent
    tree["tree_param"]["num_nodes"] = str(size + 4)
    with pytest.raises(ValueError, match="circle"):
        checked_trees(json.dumps(told), features=features, outputs=1)


def test_what_is_not_known_never_reaches_xgboost(saved):
    told = json.loads((saved[0] / "risk.json").read_text())
    told["learner"]["attributes"] = {"secret": "x"}
    told["learner"]["gradient_booster"]["weight_drop"] = [1]
    told["learner"]["gradient_booster"]["model"]["trees"][0]["leaf_weights"] = [1, 2]
    text = checked_trees(json.dumps(told), features=len(saved[1].names_), outputs=1)
    assert not any(word in text for word in ("secret", "weight_drop", "leaf_weights"))
    assert len(trees(text)) == len(trees((saved[0] / "risk.json").read_text()))


def test_of_a_key_that_is_there_twice_xgboost_sees_the_one_that_was_checked(saved):
    text = (saved[0] / "risk.json").read_text().replace('"split_indices":[', '"split_indices":[999999],"split_indices":[', 1)
    assert "999999" not in checked_trees(text, features=len(saved[1].names_), outputs=1)
