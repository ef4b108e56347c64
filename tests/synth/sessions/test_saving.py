"""The generator on disk: it comes back as it was, tells nobody's name, and a damaged file is one sentence."""

import io
import itertools
import json
import zipfile

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.learn.saving import save_model
from stormpetrel.synth.choose import load_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.sessions.generator import SessionGenerator
from stormpetrel.synth.sessions.saving import FORMAT_VERSION
from tests.synth.made_workloads import fitted_site, made_workload, site_workload, with_columns, workload_at


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small generator, and the contents of its files: record, columns, arrays."""
    generator = SessionGenerator(trees=2).fit(site_workload(260))
    folder = tmp_path_factory.mktemp("models") / "site"
    generator.save(folder)
    with np.load(folder / "arrays.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    record = json.loads((folder / "model.json").read_text())
    return generator, record, json.loads((folder / "columns.json").read_text()), arrays


def packed(arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def loaded(folder, record, columns, npz):
    """What a folder with these contents, whose digests are right, gives."""
    text = columns if isinstance(columns, str) else json.dumps(columns)
    metadata = {"settings": record["settings"], "jobs": record["jobs"], "users": record["users"]}
    files = {"columns.json": text, "arrays.npz": npz if isinstance(npz, bytes) else packed(npz)}
    save_model(folder / "made", kind=SessionGenerator.kind, format_version=FORMAT_VERSION, metadata=metadata, files=files)
    return load_generator(folder / "made")


def refused(folder, record, columns, npz, why="generator"):
    with pytest.raises(ModelFormatError, match=why) as caught:
        loaded(folder, record, columns, npz)
    assert "synth fit" in caught.value.hint and "\n" not in caught.value.what and len(caught.value.what) < 400


def not_refused(folder, record, cases):
    """Which of the named (columns, arrays) are not refused as they should be, and what came of them."""
    failures = []
    for number, (name, columns, npz) in enumerate(cases):
        (folder / str(number)).mkdir()
        try:
            refused(folder / str(number), record, columns, npz)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{name}: {type(error).__name__} {error}")
    return failures


@pytest.mark.parametrize("wanted", [Wanted(jobs=3000, seed=4), Wanted(users=1.5, gpu_jobs=1.2, seed=1)])
def test_what_comes_back_makes_the_same_jobs(tmp_path, saved, wanted):
    saved[0].save(tmp_path / "model")
    again = load_generator(tmp_path / "model")
    assert sample(again, wanted).jobs.equals(sample(saved[0], wanted).jobs)
    assert again.settings == saved[0].settings and again.notes == saved[0].notes and again.groups() == saved[0].groups()


@pytest.mark.parametrize(
    "log",
    [
        lambda: workload_at(np.arange(40) * 70.0),
        lambda: with_columns(made_workload(100), state=pl.lit("DONE"), own=pl.int_range(pl.len()) * 7919 % 101 / 3),
    ],
    ids=["times only", "numbers of its own"],
)
def test_odd_logs_come_back_too(tmp_path, log):
    generator = SessionGenerator(trees=2).fit(log())
    generator.save(tmp_path / "model")
    assert sample(load_generator(tmp_path / "model"), Wanted(jobs=50)).jobs.equals(sample(generator, Wanted(jobs=50)).jobs)


def test_a_model_is_never_overwritten(tmp_path, saved):
    saved[0].save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="exists already"):
        saved[0].save(tmp_path / "model")


def test_no_name_of_the_log_is_in_any_file(tmp_path):
    log = with_columns(
        site_workload(600),
        owner=pl.col("user"),
        project_dir=pl.format("/home/{}/run{}", "user", pl.int_range(pl.len())),
        payer=pl.format("{}", "account"),
    )
    SessionGenerator().fit(log).save(tmp_path / "model")
    for file in (tmp_path / "model").iterdir():
        contents = [file.read_bytes()]
        if file.suffix == ".npz":
            with zipfile.ZipFile(file) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        for content in contents:
            for name in ("zz-user", "zz-group", "zz-account"):
                assert name.encode() not in content and name.encode("utf-32-le") not in content


def test_a_user_with_few_jobs_has_nothing_of_his_own():
    learnt = fitted_site().learnt
    counts = site_workload().jobs["user"].value_counts()["count"].sort(descending=True).to_numpy()
    small = np.flatnonzero(counts < 20)  # users are numbered by how many jobs they have
    assert len(small) > 5
    assert len(set(learnt.habit_of[small])) == 1 and len(set(learnt.jobs_of[small])) == 1
    assert not np.isin(learnt.pairs[:, 0], small).any() and (learnt.pairs[:, 0] == -1).any()
    large = np.flatnonzero(counts >= 20)
    assert len(set(learnt.habit_of[large])) == len(large) and not set(learnt.habit_of[large]) & set(learnt.habit_of[small])


def test_the_sessions_of_users_with_few_jobs_are_shuffled_among_them():
    sizes = np.arange(1, 19)  # user n comes once, with n jobs, in week n: each could be told by his numbers
    submit = np.concatenate([week * 604_800.0 + 30.0 * np.arange(week) for week in sizes])
    user = np.repeat([f"zz{number}" for number in sizes], sizes)
    book = SessionGenerator(trees=2).fit(workload_at(submit, user=user)).learnt.book
    assert sorted(book.jobs) == sizes.tolist()
    assert np.mean(book.jobs == book.block + book.jobs.min()) < 0.5  # week n has not n jobs any more
    order = np.argsort(book.block)
    assert np.abs(np.corrcoef(book.user[order], np.arange(18))[0, 1]) < 0.8


def test_exact_times_are_not_in_the_model():
    book, log = fitted_site().learnt.book, site_workload()
    starts = book.block * book.block_s + book.start_s + fitted_site().learnt.begin_s
    assert np.mean(np.isin(np.round(starts), log.submit_s())) < 0.2


LAST = -1
ARRAY_DAMAGE = {
    "book.user": [-1, 10**6],
    "book.block": [-1, 10**6],
    "book.start_s": [np.nan, np.inf, -1.0, 1e300],
    "book.jobs": [0, -5, 2**62],
    "book.length_s": [np.nan, -1.0, 1e300],
    "book.mean_gap": [np.nan, np.inf],
    "book.theme": [np.nan, 7.0, -0.5],
    "book.shift_s": [np.nan, 1e9, -1.0],
    "book.work": [np.nan, np.inf, -1.0],
    "habit_of": [-1, 10**6],
    "habits": [np.nan, np.inf],
    "jobs_of": [-1, 2**62],
    "pairs": [-2, 10**6, 2**62],
    "pair_weight": [np.nan, -1.0, np.inf],
    "numbers": [np.inf],
    "value.gap": [np.nan, np.inf, -1.0, 1e9],
    "value.request": [-1, 10**6],
    "value.state": [-1, 1000],
    "value.runtime": [np.inf, -3.0],
    "value.limit": [np.inf, -3.0],
    **{f"{forest}.roots": [-1, 2**40] for forest in ("gap", "same", "request", "outcome")},
    **{f"{forest}.first": [-1, 2**63 - 1] for forest in ("gap", "same", "request", "outcome")},
    **{f"{forest}.count": [0, 2**31 - 1] for forest in ("gap", "same", "request", "outcome")},
}


def test_a_number_that_leads_astray_is_refused(tmp_path, saved):
    _, record, columns, arrays = saved

    def broken(name, value):
        array = arrays[name].copy()
        where = (LAST, 0) if array.ndim == 2 else LAST
        if name.endswith((".first", ".count")):
            where = np.flatnonzero(arrays[name.split(".")[0] + ".left"] < 0)[-1]
        array[where] = value
        return arrays | {name: array}

    cases = [(f"{name} {value}", columns, broken(name, value)) for name, values in ARRAY_DAMAGE.items() for value in values]
    assert len(cases) > 60 and not_refused(tmp_path, record, cases) == []


CHANGES = {
    "type": lambda array: array.astype(np.complex64),
    "shape": lambda array: array[None],
    "short": lambda array: array[:-1],
    "missing": lambda array: None,
    "objects": lambda array: array.astype(object),
}


def of_another_kind(saved, changed):
    """Cases for `not_refused`: of these (name of an array, damage), the arrays with that one damaged."""
    _, _, columns, arrays = saved
    for name, damage in changed:
        if damage != "short" or not name.endswith(".roots"):  # a tree less is a forest
            broken = arrays | {name: CHANGES[damage](arrays[name])}
            yield f"{name} {damage}", columns, {key: array for key, array in broken.items() if array is not None}


def test_no_array_may_be_of_another_kind(tmp_path, saved):
    """Every array, with one damage each, by turns."""
    by_turns = zip(saved[3], itertools.cycle(CHANGES), strict=False)
    assert not_refused(tmp_path, saved[1], of_another_kind(saved, by_turns)) == []


@pytest.mark.slow
@pytest.mark.parametrize("damage", CHANGES)
def test_no_array_may_be_of_any_other_kind(tmp_path, saved, damage):
    assert not_refused(tmp_path, saved[1], of_another_kind(saved, ((name, damage) for name in saved[3]))) == []


TEXT_DAMAGE = {
    "requests": [{}, [], None, {"cores": ["many"]}, {"cores": [1]}],
    "request_types": [{}, {"cores": "Object"}, {"gpus": "String"}, {"_at": "Int64"}, {"state": "String"}],
    "states": [None, [], 7],
    "numbers": [["cores"], ["runtime_s"], ["other", "energy_j"], [], None],
    "dtypes": [{}, {"energy_j": "Decimal"}, []],
    "columns": [[], ["submit_time", "submit_time"], ["submit_time", "surprise"], ["user"], None],
    "prefixes": [{}, {"user": "root; ", "group": "group", "account": "project"}, None],
    "block_s": [0, 1e-9, float("nan"), 1e18, "week"],
    "blocks": [0, -1, 10**9, float("inf")],
    "growth": [0, -1, float("nan"), 1e9],
    "users": [0, 1, 10**12, None],
    "jobs": [0, 10**15],
    "begin_s": [float("nan"), 1e15, -1e15],
    "origin_s": [float("nan"), -1, 1e9],
    "span_s": [float("nan"), -1, float("inf")],
    "nameless": [None, "x"],
    "notes": [None, 7],
}


def test_a_text_that_does_not_fit_is_refused(tmp_path, saved):
    _, record, columns, arrays = saved
    npz = packed(arrays)
    cases = [(f"{name} {value}", columns | {name: value}, npz) for name, values in TEXT_DAMAGE.items() for value in values]
    assert len(cases) > 50 and not_refused(tmp_path, record, cases) == []


def test_a_missing_text_is_refused(tmp_path, saved):
    _, record, columns, arrays = saved
    names = ["requests", "states", "columns", "block_s", "users", "prefixes", "notes"]
    cases = [(name, {key: value for key, value in columns.items() if key != name}, arrays) for name in names]
    assert not_refused(tmp_path, record, cases) == []


@pytest.mark.parametrize("text", ["", "[]", "7", '"x"', "[" * 100_000, '{"requests": 1e999}'])
def test_no_record_of_columns_is_refused(tmp_path, saved, text):
    _, record, _, arrays = saved
    refused(tmp_path, record, text, arrays)


@pytest.mark.parametrize("settings", [{}, {"fewest_jobs": 1, "trees": 0, "leaf": 1, "seed": 0}, [], None])
def test_settings_that_make_no_sense_are_refused(tmp_path, saved, settings):
    _, record, columns, arrays = saved
    refused(tmp_path, record | {"settings": settings}, columns, arrays)


@pytest.mark.parametrize("npz", [b"", b"PK", b"\x93NUMPY" + b"\0" * 99, b"PK\x03\x04" + b"\xff" * 400])
def test_arrays_that_are_no_archive_are_refused(tmp_path, saved, npz):
    _, record, columns, _ = saved
    refused(tmp_path, record, columns, npz)


def test_an_archive_cut_short_or_with_a_flipped_bit_is_refused(tmp_path, saved):
    _, record, columns, arrays = saved
    whole = packed(arrays)
    for number, broken in enumerate((whole[: len(whole) // 2], whole[:2000] + bytes([whole[2000] ^ 255]) + whole[2001:])):
        (tmp_path / str(number)).mkdir()
        refused(tmp_path / str(number), record, columns, broken)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path, saved, monkeypatch):
    _, record, columns, arrays = saved
    monkeypatch.setattr("stormpetrel.synth.sessions.saving._MOST_BYTES", 10_000_000)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays, bomb=np.zeros(20_000_000, np.uint8))
    assert len(file.getvalue()) < 1_000_000
    refused(tmp_path, record, columns, file.getvalue(), "larger than any")


def test_an_array_that_claims_to_be_vast_is_refused(tmp_path, saved):
    _, record, columns, arrays = saved
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (10**15,)})
    file = io.BytesIO(packed({name: array for name, array in arrays.items() if name != "book.user"}))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("book.user.npy", header.getvalue())
    refused(tmp_path, record, columns, file.getvalue())


def test_another_kind_of_model_is_refused(tmp_path):
    save_model(tmp_path / "made", kind="jobs", format_version=1, metadata={}, files={})
    with pytest.raises(ModelFormatError, match="no generator"):
        load_generator(tmp_path / "made")


def test_random_damage_is_refused_or_harmless(tmp_path, saved):
    """Whatever is in the arrays: an error in one sentence, or jobs. Never a crash, never a walk without end."""
    _, record, columns, arrays = saved
    generator = np.random.default_rng(0)
    outcomes = set()
    for number in range(40):
        name = generator.choice(list(arrays))
        broken = arrays[name].copy()
        raw = broken.view(np.uint8).reshape(-1)
        raw[generator.integers(0, raw.size, 3)] = generator.integers(0, 256, 3)
        (tmp_path / str(number)).mkdir()
        try:
            made = sample(loaded(tmp_path / str(number), record, columns, arrays | {name: broken}), Wanted(jobs=100))
            outcomes.add(made.height)
        except ModelFormatError:
            outcomes.add("refused")
    assert outcomes == {100, "refused"}
