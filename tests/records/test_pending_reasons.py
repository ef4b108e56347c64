"""Slurm's reasons for waiting: every one of them has its kind and its words."""

from __future__ import annotations

import re
from string import Formatter

from stormpetrel.records.pending_reasons import KIND_LABELS, WaitKind, pending_reason

_TRES = "BB Billing Energy GRES License Unknown".split()
_OF_WAITING_JOBS = [
    *"""None Prolog Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown PartitionInactive
    JobHeldAdmin JobHeldUser BeginTime Licenses AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
    Reservation ReqNodeNotAvail FrontEndDown SchedDefer NodeDown BadConstraints SystemFailure JobLaunchFailure
    InvalidAccount InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit Cleaning QOSNotAllowed
    AccountNotAllowed DependencyNeverSatisfied QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit
    QOSGrpMemLimit QOSGrpNodeLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit
    QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit
    QOSMaxSubmitJobPerUserLimit QOSMinCpuNotSatisfied AssocGrpCpuLimit AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit
    AssocGrpJobsLimit AssocGrpMemLimit AssocGrpNodeLimit AssocGrpSubmitJobsLimit AssocGrpWallLimit AssocMaxJobsLimit
    AssocMaxCpuPerJobLimit AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit
    AssocMaxSubmitJobLimit JobHoldMaxRequeue JobArrayTaskLimit BurstBufferResources BurstBufferStageIn BurstBufferOperation
    PowerNotAvail PowerReserved AssocMaxCpuPerNode AssocGrpMemMinutes AssocGrpMemRunMinutes AssocMaxMemPerJob
    AssocMaxMemPerNode AssocMaxMemMinutesPerJob AssocGrpNodeMinutes AssocGrpNodeRunMinutes AssocMaxNodeMinutesPerJob
    QOSMaxCpuPerNode QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser
    QOSMaxMemoryMinutesPerJob QOSMinMemory QOSGrpNodeMinutes QOSGrpNodeRunMinutes QOSMaxNodeMinutesPerJob QOSMinNode
    DeadLine MaxCpuPerAccount MaxNodePerAccount MaxMemoryPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount
    PartitionConfig AccountingPolicy FedJobLock MaxMemPerLimit ReservationDeleted ReservationInvalid Constraints""".split(),
    *(f"{owner}Grp{tres}{minutes}" for owner in ("QOS", "Assoc") for tres in _TRES for minutes in ("", "Minutes", "RunMinutes")),
    *(f"{owner}Max{tres}{per}" for owner in ("QOS", "Assoc") for tres in _TRES for per in ("PerJob", "PerNode", "MinutesPerJob")),
    *(f"QOSMax{tres}PerUser" for tres in _TRES),
    *(f"QOSMin{tres}" for tres in _TRES),
    *(f"Max{tres}PerAccount" for tres in _TRES),
]
_NEVER = """PartitionTimeLimit PartitionNodeLimit PartitionConfig BadConstraints InvalidAccount InvalidQOS AccountNotAllowed
    QOSNotAllowed DependencyNeverSatisfied MaxMemPerLimit DeadLine ReservationDeleted ReservationInvalid QOSMaxCpuPerJobLimit
    QOSMaxWallDurationPerJobLimit QOSMaxMemoryPerJob QOSMaxNodePerJobLimit QOSMaxGRESPerJob QOSMaxCpuPerNode QOSMinGRES
    QOSMaxCpuMinutesPerJobLimit QOSMinCpuNotSatisfied AssocMaxWallDurationPerJobLimit AssocMaxCpuPerJobLimit AssocMaxMemPerNode
    AssocMaxNodePerJobLimit""".split()
_FIELDS = {
    "job", "reason", "partition", "account", "qos", "time_limit", "nodes", "constraints", "required", "licences", "reservation",
    "reservation_name", "begin", "parents",
}  # fmt: skip


def test_every_reason_of_slurm_has_a_kind_and_words():
    reasons = {name: pending_reason(name) for name in _OF_WAITING_JOBS}
    assert [name for name, reason in reasons.items() if reason.kind is WaitKind.OTHER or not reason.words] == []


def test_a_job_that_cannot_run_as_it_stands_is_told_what_to_change():
    reasons = {name: pending_reason(name) for name in _NEVER}
    assert [
        name for name, reason in reasons.items() if reason.kind is not WaitKind.NEVER or not reason.change.endswith(".")
    ] == []


def test_nothing_else_is_said_never_to_run():
    assert {name for name in _OF_WAITING_JOBS if pending_reason(name).kind is WaitKind.NEVER} >= set(_NEVER)
    waiting = [name for name in _OF_WAITING_JOBS if not re.search(r"Per(Job|Node)|Min", name) and name not in _NEVER]
    assert {pending_reason(name).kind for name in waiting} == set(WaitKind) - {WaitKind.NEVER, WaitKind.OTHER}


def test_words_ask_only_for_what_a_job_can_fill_in():
    reasons = {name: pending_reason(name) for name in (*_OF_WAITING_JOBS, "SomethingNew")}
    asked = {
        (name, field)
        for name, reason in reasons.items()
        for text in (reason.words, reason.change, reason.command)
        for _, field, _, _ in Formatter().parse(text)
        if field
    }
    assert [(name, field) for name, field in asked if field not in _FIELDS] == []


def test_a_reason_of_a_later_slurm_is_told_as_it_is():
    assert pending_reason("SomethingNew").kind is WaitKind.OTHER


def test_every_kind_has_the_beginning_of_a_sentence():
    assert set(KIND_LABELS) == set(WaitKind)
