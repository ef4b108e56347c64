"""How many jobs a second the sources type that are read record by record, and condor_history by columns against the same by rows.

`python -m benchmarks.ingest_rows [--jobs N] [--repeat K]`. The records are those that were recorded from running schedulers
(tests/recordings), repeated with ids, times and paths of their own. CPU seconds of this process, the best of K, both ways in
turn. Writes benchmarks/results/ingest_rows.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from stormpetrel.sources.formats import ReadOptions, open_source
from stormpetrel.sources.htcondor import history

RESULTS = Path(__file__).parent / "results" / "ingest_rows.json"
RECORDINGS = Path(__file__).parent.parent / "tests" / "recordings"
BEGIN_S = 1_794_733_831
ROWS, COLUMNS = 2**62, 0  # from how many bytes on condor_history is read by columns


def recorded(name: str) -> str:
    return gzip.decompress((RECORDINGS / name).read_bytes()).decode()


def write_history(path: Path, jobs: int) -> None:
    ads = json.loads(recorded("condor-history-23.9.json.gz"))
    own = (
        {
            **ads[number % len(ads)],
            "ClusterId": number,
            "QDate": BEGIN_S + number,
            "GlobalJobId": f"schedd#{number}.0#{BEGIN_S + number}",
            "RemoteWallClockTime": float(number % 7000),
            "Iwd": f"/home/u{number % 50}/run{number % 3000}",
        }
        for number in range(jobs)
    )
    path.write_text(json.dumps(list(own), indent=1))


def write_sacct(path: Path, jobs: int) -> None:
    document = json.loads(recorded("sacct-24.11-v0.0.42.json.gz"))
    known = document["jobs"]
    document["jobs"] = [{**known[number % len(known)], "job_id": 1000 + number} for number in range(jobs)]
    path.write_text(json.dumps(document, separators=(",", ":")))


def write_pbs(path: Path, jobs: int) -> None:
    lines = [line for line in recorded("torque-2.4.16.log.gz").splitlines() if ";E;" in line]
    path.write_text("".join(f"{lines[number % len(lines)].replace(';E;', f';E;{number + 10}', 1)}\n" for number in range(jobs)))


def write_lsf(path: Path, jobs: int) -> None:
    """The records of lsb.acct, which are written after the documentation, with job ids of their own."""
    lines = [line for line in (RECORDINGS / "lsf" / "lsb.acct").read_text().splitlines() if line.startswith('"JOB_FINISH"')]
    with path.open("w") as file:
        for number in range(jobs):
            words = lines[number % len(lines)].split(" ", 4)
            file.write(" ".join([*words[:3], str(1000 + number), words[4]]) + "\n")


def cpu_s(path: Path, format_name: str) -> tuple[float, int]:
    began, rows = time.process_time(), 0
    for chunk in open_source(str(path), format_name, ReadOptions()).chunks():
        rows += chunk.records.height
    return time.process_time() - began, rows


def measure(folder: Path, jobs: int, repeat: int) -> dict[str, Any]:
    files = {"sacct-json": folder / "sacct.json", "pbs": folder / "pbs.log", "lsf": folder / "lsb.acct"}
    files |= {"condor-history": folder / "history.json"}
    for write, path in zip((write_sacct, write_pbs, write_lsf, write_history), files.values(), strict=True):
        write(path, jobs)
    cases = [("sacct-json by rows", "sacct-json", ROWS), ("pbs by rows", "pbs", ROWS), ("lsf by rows", "lsf", ROWS)]
    cases += [("condor-history by rows", "condor-history", ROWS), ("condor-history by columns", "condor-history", COLUMNS)]
    best: dict[str, dict[str, float]] = {}
    for turn in range(repeat + 1):  # the first compiles
        for case, format_name, threshold in cases:
            history.BY_COLUMNS_BYTES = threshold  # type: ignore[misc]
            seconds, rows = cpu_s(files[format_name], format_name)
            if turn and (case not in best or seconds < best[case]["cpu_s"]):
                size = files[format_name].stat().st_size
                best[case] = {"cpu_s": seconds, "jobs_per_s": rows / seconds, "bytes_per_job": size / jobs}
    return best


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stormpetrel-bench-") as name:
        best = measure(Path(name), options.jobs, options.repeat)
    ratio = best["condor-history by columns"]["jobs_per_s"] / best["condor-history by rows"]["jobs_per_s"]
    for case, result in best.items():
        print(f"  {case:<28}{result['jobs_per_s']:10,.0f} jobs/s   {result['bytes_per_job']:,.0f} bytes a job")
    print(f"  condor-history, columns / rows   {ratio:.1f}")
    about = {"python": platform.python_version(), "jobs": options.jobs, "best": best, "columns / rows": ratio}
    RESULTS.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
