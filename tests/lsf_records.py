"""Records of LSF, field by field in the order of its files: a JOB_FINISH line of lsb.acct, with what a test wants different."""

from __future__ import annotations

from collections.abc import Sequence

SUBMIT = 1_700_000_000
# The nineteen fields of a job's use, of which LSF fills some.
_USE_AFTER_CPU = "3748 0 -1 0 0 436 4 0 928 0 -1 0 0 0 19 2 -1"


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def acct_line(
    job_id: int = 386,
    *,
    version: str = "10.108",
    index: int = 0,
    submit: object = SUBMIT,
    begin: object = 0,
    start: object = SUBMIT + 60,
    end: object = SUBMIT + 660,
    user: str = "wren",
    uid: object = 1501,
    queue: str = "normal",
    name: str = "fit",
    command: str = "/home/wren/fit --all",
    project: str = "aves",
    status: object = 64,
    exit_status: object = 0,
    reason: object = 0,
    slots: object = 8,
    hosts: Sequence[str] = ("4*n1", "4*n2"),
    asked_hosts: Sequence[str] = (),
    allocated: Sequence[str] | None = None,
    resources: str = "rusage[mem=1024]",
    effective: str = "select[type == any] order[r15s:pg] rusage[mem=1024.00] ",
    limit: object = 3600,
    user_s: object = "1100.5",
    system_s: object = "99.5",
    max_rss_kb: object = 1024,
    service_class: str = "",
    application: str = "",
    extension: Sequence[tuple[str, str]] = (("1110", "default"), ("1033", "0")),
    host_use: Sequence[str] = (),
    source_cluster: str = "",
    run_s: object = 600,
    ineligible: object = -1,
    requeued: object = 0,
) -> str:
    """A record as version 10 writes it; older versions end earlier."""

    def listed(items: Sequence[str]) -> list[str]:
        return [str(len(items)), *(quoted(item) for item in items)]

    allocated = hosts if allocated is None else allocated
    fields: list[object] = [
        '"JOB_FINISH"', quoted(version), end, job_id, uid, 33554434, slots, submit, begin, 0, start,
        quoted(user), quoted(queue), quoted(resources), '""', '""', '"login1"', '"/home/wren/run"', '""', '"%J.out"', '""',
        quoted(f"{submit}.{job_id}"), *listed(asked_hosts), *listed(hosts), status, "100.0", quoted(name), quoted(command),
        user_s, system_s, _USE_AFTER_CPU, '""', quoted(project), exit_status, slots, '""', '""', index, max_rss_kb, 0,
    ]  # fmt: skip
    if float(version) >= 6:
        fields += ['""', '""', '""', quoted(service_class), 0, '""', reason, '""', -1, '"/aves/wren"', '""', quoted(application)]
        fields += ['""', -1, '""', '""', 5136, '""', start, '""', '""']
        pairs = [(key, quoted(value)) for key, value in extension]
        fields += [len(pairs), *(word for pair in pairs for word in pair)]
    if float(version) >= 9:
        fields += [len(host_use), *host_use, limit, 4194304, 1024, quoted(effective)]
        fields += [quoted(source_cluster), -1, '""', -1, 0, '""', 0, 0, '""', run_s, '"/home/wren/run"', 0]
        fields += ['""', "0.000000 0.00 0.00 0.00 0.00", *listed(allocated)]
    if float(version) >= 10:
        fields += [ineligible, 0, requeued, 0, 0, 1, '"schedulingOverhead" "0.00"']
    return " ".join(str(field) for field in fields)
