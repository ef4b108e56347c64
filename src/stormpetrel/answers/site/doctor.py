"""The examination: every check of the doctor, one after the other.

Site + Viewer -> doctor -> DoctorReport; Site -> examine -> the findings of the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Final

from stormpetrel.answers.schemas.health import DoctorFinding, DoctorReport
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.ingest.source_checks import check_live_reading, check_prometheus, check_slurm, check_watch
from stormpetrel.lifecycle.families import model_findings
from stormpetrel.records.checks import Finding, summary, worst
from stormpetrel.store.doctor.addresses import check_addresses
from stormpetrel.store.doctor.deep import check_model_files, check_table_files
from stormpetrel.store.doctor.store_checks import (
    check_disk,
    check_events,
    check_extras,
    check_folder,
    check_jobs,
    check_quarantine,
    check_registry,
    check_state,
    check_unread,
    check_writable,
)
from stormpetrel.store.site import Site
from stormpetrel.watch.actions.checks import check_actions
from stormpetrel.watch.notify.checks import check_messages

Check = Callable[[Site], Iterator[Finding]]
CHECKS: Final[tuple[Check, ...]] = (
    check_folder,
    check_writable,
    check_disk,
    check_state,
    check_registry,
    check_jobs,
    check_events,
    check_quarantine,
    check_unread,
    check_slurm,
    check_prometheus,
    check_live_reading,
    check_watch,
    check_messages,
    check_actions,
    check_addresses,
    check_extras,
)
DEEP_CHECKS: Final[tuple[Check, ...]] = (check_table_files, check_model_files)


def doctor(site: Site, viewer: Viewer, *, deep: bool = False) -> DoctorReport:
    """Return all that was looked at, with `deep` also every byte, and whether models can be read; administrators only."""
    viewer.require(READ)
    viewer.require_admin()
    return report_of([*examine(site, deep=deep), *model_findings(site)])


def report_of(findings: Sequence[Finding]) -> DoctorReport:
    """Return findings as a report, in their order."""
    lines = [DoctorFinding(**asdict(finding)) for finding in findings]
    return DoctorReport(worst=worst(findings), findings=lines, summary=summary(findings))


def examine(site: Site, *, deep: bool = False) -> list[Finding]:
    """Look at everything, with `deep` also at every byte; a check that fails itself is a problem, not a crash."""
    findings: list[Finding] = []
    for check in (*CHECKS, *DEEP_CHECKS) if deep else CHECKS:
        try:
            findings += check(site)
        except StormpetrelError as error:
            findings.append(Finding("problem", _name(check), error.what, error.hint))
        except OSError as error:
            findings.append(Finding("problem", _name(check), str(error), "Check the site's folder."))
    return findings


def _name(check: Check) -> str:
    return check.__name__.removeprefix("check_").replace("_", " ")
