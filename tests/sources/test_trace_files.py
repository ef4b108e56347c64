import io
import struct
import zipfile
from contextlib import suppress

import numpy as np
import pytest

from stormpetrel import private_files
from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.records.traces import NO_JOB, UNKNOWN_JOB, Split, Trace, TraceJob, mpi
from stormpetrel.records.windows import cut_windows
from stormpetrel.sources import trace_files
from stormpetrel.sources.trace_files import read_campaigns, read_trace, write_trace


def made_trace(name="run", *, steps=30, split=Split.TRAIN):
    rates = np.random.default_rng(0).dirichlet(np.ones(4), size=(steps, 3)).astype(np.float32)
    rates[7, 1] = np.nan
    job = np.full((steps, 3), NO_JOB, dtype=np.int32)
    job[5:, 0], job[:, 2] = 0, UNKNOWN_JOB
    time_s = 1_700_000_001.0 + np.arange(steps)
    return Trace(name, 1.0, time_s, ("n1", "n1", "n2"), (0, 1, 0), rates, job, (TraceJob("7", mpi(2)),), split).checked()


def foreign(path, *, t=None, x=None, cpu=("n1/001", "n1/002"), modes=("user", "system", "iowait", "steal", "idle"), **more):
    """A file as another monitor would write it: percent, 1 Hz, no jobs."""
    t = 1_000 + np.arange(10) if t is None else np.asarray(t)
    if x is None:
        x = np.zeros((len(t), len(cpu), len(modes)), dtype=np.float32)
        x[..., 0], x[..., -1] = 30.0, 70.0
    np.savez_compressed(path, t=t, x=x, cpu=np.array(cpu), modes=np.array(modes), **more)
    return path


def complaint(path):
    with pytest.raises(SourceFormatError) as caught:
        read_trace(path)
    assert str(path) in caught.value.what and caught.value.hint
    return caught.value.what


def test_a_trace_that_was_written_reads_as_it_was(tmp_path):
    trace = made_trace()
    write_trace(trace, tmp_path / "run.npz")
    again = read_trace(tmp_path / "run.npz")
    assert np.allclose(again.rates, trace.rates, atol=1e-6, equal_nan=True)
    assert np.array_equal(again.job, trace.job) and again.jobs == trace.jobs
    assert (again.name, again.split, again.nodes, again.cpus) == (trace.name, trace.split, trace.nodes, trace.cpus)
    assert np.array_equal(again.time_s, trace.time_s) and again.step_s == trace.step_s


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    write_trace(made_trace(), tmp_path / "run.npz")
    before = (tmp_path / "run.npz").read_bytes()
    monkeypatch.setattr(private_files.os, "fsync", lambda _: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        write_trace(made_trace(steps=40), tmp_path / "run.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]
    assert (tmp_path / "run.npz").read_bytes() == before


def test_percent_of_any_modes_become_four_shares_that_sum_to_one(tmp_path):
    modes = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")
    x = np.broadcast_to(np.array([20, 10, 5, 3, 2, 15, 5, 40.1], dtype=np.float32), (10, 2, 8))
    trace = read_trace(foreign(tmp_path / "a.npz", x=x, modes=modes))
    assert np.allclose(trace.rates[3, 1], np.array([30, 10, 15, 45.1]) / 100.1, atol=1e-6)
    assert (trace.job == UNKNOWN_JOB).all() and trace.name == "a" and trace.split is None
    assert trace.cpus == (1, 2)


def test_missing_codes_and_rows_of_zeros_are_gaps(tmp_path):
    x = np.tile(np.array([30, 0, 0, 0, 70], dtype=np.float32), (10, 2, 1))
    x[2, 0], x[3, 1, 1], x[4, 0], x[5, 0, 0] = -1, np.nan, 0, np.inf
    trace = read_trace(foreign(tmp_path / "a.npz", x=x))
    assert {tuple(place) for place in np.argwhere(np.isnan(trace.rates[..., 0])).tolist()} == {(2, 0), (3, 1), (4, 0), (5, 0)}


def test_uneven_times_go_to_a_regular_grid_and_keep_their_job_over_the_gap(tmp_path):
    job = np.array([[0], [0], [0], [1], [1], [-1]])
    t = [100, 101, 101, 105, 106, 107]
    x = np.tile(np.array([30, 0, 0, 0, 70], dtype=np.float32), (6, 1, 1))
    x[2, 0] = (50, 0, 0, 0, 50)
    names = {"job_ids": np.array(["7", "8"]), "job_types": np.array(["NP", ""])}
    trace = read_trace(foreign(tmp_path / "a.npz", t=t, x=x, cpu=("n1/0",), job=job, **names))
    assert np.isnan(trace.rates[:, 0, 0]).tolist() == [False, False, True, True, True, False, False, False]
    assert trace.rates[1, 0, 0] == pytest.approx(0.5)  # of two samples in one second the later counts
    assert trace.job[:, 0].tolist() == [0, 0, 0, 0, 0, 1, 1, NO_JOB]


def test_missing_modes_are_named(tmp_path):
    assert "no mode iowait (found: user, system, idle)" in complaint(
        foreign(tmp_path / "a.npz", modes=("user", "system", "idle"))
    )
    assert "no idle" in complaint(foreign(tmp_path / "b.npz", modes=("user", "system", "steal")))


def test_shares_where_percent_are_expected_are_refused(tmp_path):
    x = np.tile(np.array([0.3, 0, 0, 0, 0.7], dtype=np.float32), (10, 2, 1))
    assert "sum to 1 where 100 percent" in complaint(foreign(tmp_path / "a.npz", x=x))


@pytest.mark.parametrize(("factor", "hint"), [(0.01, "Multiply shares by 100"), (70.0, "Turn counters into percent")])
def test_shares_and_counters_are_told_apart_in_the_hint(tmp_path, factor, hint):
    x = factor * np.tile(np.array([30.0, 0, 0, 0, 70.0], dtype=np.float32), (10, 2, 1))
    with pytest.raises(SourceFormatError) as caught:
        read_trace(foreign(tmp_path / "a.npz", x=x))
    assert hint in caught.value.hint


def test_times_that_tremble_are_of_the_step_that_was_meant(tmp_path):
    tremble_s = 0.01 * np.random.default_rng(0).standard_normal(300)
    for name, step_s in (("a", 1.0004), ("b", 0.9997)):
        trace = read_trace(foreign(tmp_path / f"{name}.npz", t=1_000 + step_s * np.arange(300) + tremble_s))
        assert trace.step_s == 1.0 and trace.steps in (300, 301)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"t": [100, 101, 99, 102]}, "goes back by 2.0 s"),
        ({"t": [5, 5, 5]}, "same time"),
        ({"t": [1.0]}, "at least two"),
        ({"t": [0, 1, 2, 4e9]}, "its clock jumped"),
        ({"t": (1.6e9 + np.arange(1000)).astype(np.float32)}, "different times for 1,000 samples"),
        ({"t": [0.0, np.nan]}, "no Unix seconds"),
        ({"cpu": ("n1/0", "n1")}, "names a thread 'n1'"),
        ({"cpu": ("n1/0", "n1/0")}, "names the thread n1/0 more than once"),
        ({"cpu": ("n1/0", "n1/" + "1" * 300)}, "too long"),
        ({"x": np.zeros((3, 3), dtype=np.float32)}, "shape (3, 3)"),
        ({"x": np.full((10, 2, 5), "a")}, "not numbers"),
        ({"split": np.array("practice")}, "'practice', expected train"),
        ({"step_s": np.array(0.0)}, "steps of 0 s"),
        ({"job": np.full((10, 2), 3), "job_ids": np.array(["7"]), "job_types": np.array([""])}, "points to job 3 of 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, changes, words):
    assert words in sentence_about(foreign(tmp_path / "a.npz", **changes))


def sentence_about(path):
    with pytest.raises(SourceFormatError) as caught:
        read_trace(path)
    return caught.value.what


def test_an_array_that_is_missing_is_named_with_what_is_there(tmp_path):
    np.savez(tmp_path / "a.npz", t=np.arange(3), cpu=np.array(["n/0"]))
    assert "no array 'modes' (found: cpu, t)" in complaint(tmp_path / "a.npz")


def test_objects_are_never_unpickled(tmp_path):
    path = tmp_path / "a.npz"
    foreign(path)
    with zipfile.ZipFile(path, "a") as archive:
        content = io.BytesIO()
        np.save(content, np.array([{"evil": 1}], dtype=object), allow_pickle=True)
        archive.writestr("campaign.npy", content.getvalue())
    assert "never unpickled" in complaint(path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_files, "_MOST_BYTES", 1_000)
    assert "would unpack to" in complaint(foreign(tmp_path / "a.npz"))


def test_an_array_that_claims_to_be_larger_than_it_is_is_refused(tmp_path):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 2, 5)})
    path = foreign(tmp_path / "a.npz")
    with zipfile.ZipFile(path) as archive:
        others = {name: archive.read(name) for name in archive.namelist() if name != "x.npy"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (others | {"x.npy": content.getvalue()}).items():
            archive.writestr(name, data)
    assert "cut off" in complaint(path)


def with_member(path, name, content):
    """A campaign file with other bytes in place of one of its arrays."""
    foreign(path)
    with zipfile.ZipFile(path) as archive:
        others = {member: archive.read(member) for member in archive.namelist() if member != name}
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in (others | {name: content}).items():
            archive.writestr(member, data)
    return path


def header(text):
    """The beginning of an array whose header is this text."""
    line = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUM",
        b"\x93NUMPY\x09\x09\x00\x00",
        header("{'descr': '<f4', 'fortran_order': False, 'shape': ((((2,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 400 + ")" * 400 + "}"),
        header("{'descr': '<U999999999', 'fortran_order': False, 'shape': (1,), }"),
        header("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000,), }"),
        header("{'descr': '|V0', 'fortran_order': False, 'shape': (10, 2, 5), }"),
        header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (0,), }"),
        header("'\\n"),
    ],
)
def test_an_array_that_is_damaged_is_one_sentence(tmp_path, content):
    for name in ("x.npy", "cpu.npy"):
        assert "\n" not in complaint(with_member(tmp_path / "a.npz", name, content))


def test_the_name_of_an_array_cannot_break_the_sentence(tmp_path):
    np.savez(tmp_path / "a.npz", t=np.arange(3), cpu=np.array(["n/0"]), **{"evil\n\x1b[2J": np.arange(2)})
    told = complaint(tmp_path / "a.npz")
    assert told.isprintable() and "evil??[2J" in told


def test_a_small_file_that_unpacks_to_much_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", t=np.arange(3), zeros=np.zeros(20_000_000))
    assert (tmp_path / "a.npz").stat().st_size < 1_000_000
    assert "would unpack to 160 MB, more than 134 MB" in complaint(tmp_path / "a.npz")


def test_a_clock_that_jumps_by_years_is_refused_before_its_grid_is_made(tmp_path):
    columns = {"x": np.full((5, 1, 4), 25.0), "cpu": np.array(["n/0"]), "modes": np.array(["user", "system", "iowait", "idle"])}
    np.savez(tmp_path / "a.npz", t=np.array([0.0, 1.0, 2.0, 3.0, 2e8]), **columns)
    assert "its clock jumped" in complaint(tmp_path / "a.npz")


def test_damaged_files_are_refused_as_what_they_are_or_read(tmp_path):
    good = bytearray(foreign(tmp_path / "a.npz").read_bytes())
    rng = np.random.default_rng(16)
    for _ in range(150):
        damaged = bytearray(good)
        for place in rng.integers(len(good), size=int(rng.choice([1, 3, 20]))):
            damaged[place] = rng.integers(256)
        (tmp_path / "b.npz").write_bytes(damaged[: rng.integers(len(good))] if rng.random() < 0.2 else damaged)
        with suppress(SourceError):  # and nothing else
            read_trace(tmp_path / "b.npz")


def test_half_a_file_and_no_file_are_told_apart(tmp_path):
    path = foreign(tmp_path / "a.npz")
    path.write_bytes(path.read_bytes()[:200])
    assert "no whole .npz file" in complaint(path)
    with pytest.raises(SourceError, match="There is no file"):
        read_trace(tmp_path / "none.npz")


def test_folders_and_files_are_read_once_each_and_in_order(tmp_path):
    for name in ("b", "a"):
        write_trace(made_trace(name), tmp_path / f"{name}.npz")
    assert [trace.name for trace in read_campaigns([tmp_path, tmp_path / "a.npz"])] == ["a", "b"]


def test_two_campaigns_of_one_name_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(SourceFormatError, match=r"no \.npz file"):
        read_campaigns([tmp_path])
    for name in ("a", "b"):
        write_trace(made_trace("same"), tmp_path / f"{name}.npz")
    with pytest.raises(SourceFormatError, match="both call their campaign 'same'"):
        read_campaigns([tmp_path])


@pytest.mark.realdata
def test_real_traces_of_four_nodes_are_read_with_their_gaps(public_logs):
    traces = read_campaigns([public_logs / "telemetry" / "exathlon"])
    assert len(traces) == 8
    for trace in traces:
        windows = cut_windows(trace)
        assert trace.threads == 128 and len(set(trace.nodes)) == 4
        assert len(windows) >= 25 * 128 and sum(windows.left_out.values()) <= 128
        assert np.nanmean(trace.rates[..., 3]) > 0.8  # mostly idle
