"""The numbers of the published study, as tables to stand next to a site's own.

"Proactive Precision: Enhancing High-Performance Computing with Early Job Failure Detection": 300,000 jobs of a 1027-node
system, October 2022 to September 2023. Its Table I is in `jobs.seed_protocol`.
"""

from __future__ import annotations

from typing import Final

from stormpetrel.faces.report.blocks import Column, Table

STUDY: Final = "Proactive Precision: Enhancing High-Performance Computing with Early Job Failure Detection"
COMPLETED_SHARE: Final = 0.92
FAILED_SHARE: Final = 0.08
PROFILES: Final = 3
ROC_AUC: Final = 0.99
# With the state as Completed = 1, so that a negative one means: failing goes with more of it. Here the sign is turned.
CORRELATIONS: Final = {
    "user_id": 0.33, "run_time_s": 0.25, "submit_month": 0.29, "submit_week_of_year": 0.28, "cpu": 0.12, "mem_bytes": 0.12,
}  # fmt: skip
CPU_AND_MEMORY: Final = 1.00
USER_AND_PROFILE: Final = 0.77
_PROFILE: Final = Column("profile", "d")


def _counts(title: str, unit: str, names: tuple[str, ...], *rows: tuple[int, ...]) -> Table:
    columns = (_PROFILE, *(Column(f"{name} ({unit})", ",d") for name in names))
    return Table(title, columns, tuple((place, *row) for place, row in enumerate(rows)))


PROFILE_TABLES: Final = (
    Table(
        "The published study, Fig. 4: resources (mean ± std)",
        (_PROFILE, Column("CPUs", ""), Column("memory (its unit)", ""), Column("run time (s)", ""), Column("wait time (s)", "")),
        (
            (0, "256.0 ± 0.0", "446.0 ± 0.0", "133 ± 20", "1 ± 3"),
            (1, "23,917.0 ± 46,280.2", "42,406.8 ± 81,721.5", "2,268 ± 6,100", "2,432 ± 8,777"),
            (2, "235.7 ± 68.0", "446.0 ± 1.9", "785 ± 1,652", "21 ± 18"),
        ),
    ),
    _counts(
        "The published study, Fig. 5: duration", "jobs", ("Long", "Medium", "Short"), (0, 0, 78983), (3583, 8571, 13071),
        (1727, 7800, 54391),
    ),
    _counts(
        "The published study, Fig. 6: user activity", "users", ("Frequent", "Infrequent", "New"), (0, 1, 0), (36, 37, 68),
        (12, 12, 21),
    ),
    _counts("The published study, Fig. 7: status", "jobs", ("Completed", "Failed"), (78949, 34), (17479, 7746), (58418, 5500)),
    _counts(
        "The published study, Fig. 8: type", "jobs", ("Balanced", "Compute", "Memory"), (78983, 0, 0), (25005, 60, 160),
        (63914, 0, 4),
    ),
)  # fmt: skip
