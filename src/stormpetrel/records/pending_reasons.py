"""Why a job waits, in Slurm's words -> what kind of waiting that is, what it means, and what to change.

`PartitionTimeLimit` -> Reason(never, …). The names are those of Slurm's table of job reasons (22.05 to 26.05). What is in
braces is filled in from the job: its partition, its parents, its nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class WaitKind(StrEnum):
    """What a job that has not started waits for."""

    NEVER = "never"  # it cannot run as it stands
    HELD = "held"
    LIMIT = "limit"
    PARENT = "parent"
    NODE = "node"
    PARTITION = "partition"
    LICENCE = "licence"
    RESERVATION = "reservation"
    BEGIN_TIME = "begin time"
    TURN = "turn"
    SYSTEM = "system"  # the scheduler is busy with it
    OTHER = "other"  # a reason that is not in the list


# How a sentence of each kind begins; the words of the reason follow.
KIND_LABELS: Final = {
    WaitKind.NEVER: "Cannot run as it stands: ",
    WaitKind.HELD: "Held ",
    WaitKind.LIMIT: "Waits for a limit: ",
    WaitKind.PARENT: "Waits for ",
    WaitKind.NODE: "Waits for nodes: ",
    WaitKind.PARTITION: "Waits for its partition: ",
    WaitKind.LICENCE: "Waits for a licence: ",
    WaitKind.RESERVATION: "Waits for its reservation: ",
    WaitKind.BEGIN_TIME: "Waits for its begin time: ",
    WaitKind.TURN: "Waits for its turn: ",
    WaitKind.SYSTEM: "Waits for the scheduler: ",
    WaitKind.OTHER: "Waits: ",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One of Slurm's reasons: its kind, the same in words, what to do about it, the column of the request it is about.

    `command` is what does it to a job that is submitted already, where one command does.
    """

    kind: WaitKind
    words: str
    change: str = ""
    column: str | None = None
    command: str = ""


_RELEASE: Final = "scontrol release {job}"
_UPDATE: Final = "scontrol update JobId={job} "
_CONTACT_ADMIN: Final = "Only an administrator can change that."

_REASONS: Final = {
    # It cannot run as it stands.
    "PartitionTimeLimit": Reason(
        WaitKind.NEVER,
        "its time limit{time_limit} is above the limit of partition {partition}",
        "Ask for less time (--time), or for another partition (--partition).",
        "time_limit_s",
    ),
    "PartitionNodeLimit": Reason(
        WaitKind.NEVER,
        "it asks for {nodes}, which partition {partition} does not allow or has not in service",
        "Ask for another number of nodes (--nodes), or for another partition (--partition).",
        "req_nodes",
    ),
    "PartitionConfig": Reason(
        WaitKind.NEVER,
        "it asks for more than partition {partition} allows or has",
        "Compare it with the partition: scontrol show partition {partition}.",
        "partition",
    ),
    "BadConstraints": Reason(
        WaitKind.NEVER,
        "no node has what it asks for{constraints}",
        "Correct --constraint, --gres, --mem, --cpus-per-task or --nodelist, and submit it again.",
        "constraints",
    ),
    "InvalidAccount": Reason(
        WaitKind.NEVER,
        "account {account} is not valid for this user",
        "Name another account (--account); yours are in: sacctmgr show associations user=$USER.",
        "account",
        _UPDATE + "Account=NAME",
    ),
    "AccountNotAllowed": Reason(
        WaitKind.NEVER,
        "account {account} may not use partition {partition}",
        "Name another account (--account) or another partition (--partition).",
        "account",
    ),
    "InvalidQOS": Reason(
        WaitKind.NEVER,
        "QOS {qos} is not valid for this user",
        "Name another QOS (--qos); yours are in: sacctmgr show associations user=$USER.",
        "qos",
        _UPDATE + "QOS=NAME",
    ),
    "QOSNotAllowed": Reason(
        WaitKind.NEVER,
        "QOS {qos} may not be used by this account or in partition {partition}",
        "Name another QOS (--qos) or another partition (--partition).",
        "qos",
    ),
    "DependencyNeverSatisfied": Reason(
        WaitKind.NEVER,
        "it depends on {parents}, and that can no longer come true",
        "Drop the dependency, or cancel the job.",
        "dependency",
        _UPDATE + "Dependency=",
    ),
    "MaxMemPerLimit": Reason(
        WaitKind.NEVER,
        "it asks for more memory per CPU or per node than is allowed",
        "Ask for less memory (--mem, --mem-per-cpu).",
        "req_mem_bytes",
    ),
    "DeadLine": Reason(
        WaitKind.NEVER,
        "it can no longer meet its deadline",
        "Cancel it, and submit it again with a later --deadline or a shorter --time.",
        "time_limit_s",
        "scancel {job}",
    ),
    "ReservationDeleted": Reason(
        WaitKind.NEVER,
        "its reservation{reservation} is gone",
        "Drop the reservation, and release the job.",
        "reservation",
        _UPDATE + "ReservationName=",
    ),
    "ReservationInvalid": Reason(
        WaitKind.NEVER,
        "its reservation{reservation} is not valid for it",
        "Name another one (--reservation).",
        "reservation",
        _UPDATE + "ReservationName=NAME",
    ),
    # Held.
    "JobHeldUser": Reason(WaitKind.HELD, "by its user", "Release it.", command=_RELEASE),
    "JobHeldAdmin": Reason(WaitKind.HELD, "by an administrator", "Only an administrator can release it: ask why it is held."),
    "JobHoldMaxRequeue": Reason(
        WaitKind.HELD,
        "because it was put back into the queue too often",
        "Find out why its starts fail, then release it.",
        command=_RELEASE,
    ),
    "JobLaunchFailure": Reason(
        WaitKind.HELD, "because it could not be launched", "Check its script and folders, then release it.", command=_RELEASE
    ),
    "BurstBufferOperation": Reason(
        WaitKind.HELD, "because its burst buffer failed", "Check its burst buffer lines, then release it.", command=_RELEASE
    ),
    # A parent.
    "Dependency": Reason(WaitKind.PARENT, "{parents}"),
    # Nodes and partitions.
    "NodeDown": Reason(WaitKind.NODE, "a node that it needs{required} is down", _CONTACT_ADMIN),
    "ReqNodeNotAvail": Reason(
        WaitKind.NODE,
        "a node that it needs{required} is reserved, down or drained",
        "Leave the choice of nodes to Slurm (no --nodelist), or wait until they are back: sinfo -R tells why they are away.",
    ),
    "Constraints": Reason(WaitKind.NODE, "no node in service has what it asks for{constraints} at this time"),
    "FrontEndDown": Reason(WaitKind.NODE, "no front end node is in service", _CONTACT_ADMIN),
    "PowerNotAvail": Reason(WaitKind.NODE, "the power budget is used up"),
    "PowerReserved": Reason(WaitKind.NODE, "the power that it needs is reserved"),
    "PartitionDown": Reason(
        WaitKind.PARTITION, "{partition} is down and starts no jobs", "Wait, or name another one: --partition."
    ),
    "PartitionInactive": Reason(
        WaitKind.PARTITION, "{partition} is inactive and starts no jobs", "Wait, or name another one: --partition."
    ),
    # Licences, reservations, times.
    "Licenses": Reason(WaitKind.LICENCE, "{licences} in use by others"),
    "Reservation": Reason(WaitKind.RESERVATION, "{reservation_name} has not begun, or is full"),
    "BeginTime": Reason(WaitKind.BEGIN_TIME, "{begin}"),
    # Its turn.
    "Resources": Reason(WaitKind.TURN, "it starts when enough nodes are free"),
    "Priority": Reason(WaitKind.TURN, "jobs with a higher priority come first, or its nodes are in use"),
    "SchedDefer": Reason(WaitKind.TURN, "it asked to start at once, which this cluster does not do"),
    "None": Reason(WaitKind.TURN, "the scheduler has not looked at it yet"),
    # Limits without a name of the usual form.
    "JobArrayTaskLimit": Reason(
        WaitKind.LIMIT,
        "as many tasks of its array run as it allows itself",
        "Let more of them run at once (--array=…%NUMBER).",
        command=_UPDATE + "ArrayTaskThrottle=NUMBER",
    ),
    "AssociationJobLimit": Reason(WaitKind.LIMIT, "account {account} runs as many jobs as it may"),
    "AssociationResourceLimit": Reason(WaitKind.LIMIT, "account {account} uses as much as it may"),
    "AssociationTimeLimit": Reason(WaitKind.LIMIT, "account {account} has used the time that it may use"),
    "QOSJobLimit": Reason(WaitKind.LIMIT, "QOS {qos} runs as many jobs as it may"),
    "QOSResourceLimit": Reason(WaitKind.LIMIT, "QOS {qos} uses as much as it may"),
    "QOSTimeLimit": Reason(WaitKind.LIMIT, "QOS {qos} has used the time that it may use"),
    "QOSUsageThreshold": Reason(WaitKind.LIMIT, "the account has used more than QOS {qos} takes jobs from"),
    "AccountingPolicy": Reason(WaitKind.LIMIT, "a limit of account {account} or QOS {qos}"),
    # The scheduler is busy with it.
    "Prolog": Reason(WaitKind.SYSTEM, "the prolog on its nodes still runs"),
    "Cleaning": Reason(WaitKind.SYSTEM, "its last run is still being cleaned up"),
    "FedJobLock": Reason(WaitKind.SYSTEM, "the clusters of the federation agree on who runs it"),
    "BurstBufferResources": Reason(WaitKind.SYSTEM, "there is no room in the burst buffer"),
    "BurstBufferStageIn": Reason(WaitKind.SYSTEM, "its data are copied into the burst buffer"),
    "SystemFailure": Reason(WaitKind.SYSTEM, "a part of the cluster failed", _CONTACT_ADMIN),
}

# Limits have names made of parts: QOSMaxCpuPerJobLimit, AssocGrpCPURunMinutesLimit, MaxGRESPerAccount, QOSMinCpuNotSatisfied.
_RESOURCES: Final = {
    "Cpu": ("CPUs", "req_cpus", "--ntasks, --cpus-per-task"),
    "CPU": ("CPUs", "req_cpus", "--ntasks, --cpus-per-task"),
    "Mem": ("memory", "req_mem_bytes", "--mem, --mem-per-cpu"),
    "Memory": ("memory", "req_mem_bytes", "--mem, --mem-per-cpu"),
    "Node": ("nodes", "req_nodes", "--nodes"),
    "GRES": ("GPUs or other generic resources", "req_gpus", "--gres, --gpus"),
    "License": ("licences", None, "--licenses"),
    "BB": ("burst buffer", None, "its burst buffer lines"),
    "Billing": ("billed resources", None, "--ntasks, --mem, --gres"),
    "Energy": ("energy", None, "--time, --nodes"),
    "Unknown": ("a resource", None, "its request"),
}
_LIMIT: Final = re.compile(
    rf"(?P<owner>QOS|Assoc)(?P<which>Grp|Max|Min)(?P<what>{'|'.join(sorted(_RESOURCES, key=len, reverse=True))})"
    r"(?P<minutes>Minutes|RunMinutes)?(?P<per>PerJob|PerNode|PerUser|NotSatisfied)?(?:Limit)?"
)
_JOBS: Final = re.compile(r"(?P<owner>QOS|Assoc)(?:Grp|Max)(?P<submit>Submit)?Jobs?(?:PerUser|PerAccount)?(?:Limit)?")
_WALL: Final = re.compile(r"(?P<owner>QOS|Assoc)(?P<which>Grp|Max)Wall(?:DurationPerJob)?(?:Limit)?")
_PER_ACCOUNT: Final = re.compile(rf"Max(?P<what>Jobs|SubmitJobs|{'|'.join(sorted(_RESOURCES, key=len, reverse=True))})PerAccount")
_OWNERS: Final = {"QOS": "QOS {qos}", "Assoc": "account {account} (of this user)"}


def pending_reason(name: str) -> Reason:
    """What one of Slurm's reasons means; a name that is not known is shown as it is.

    >>> pending_reason("QOSMaxCpuPerJobLimit").kind, pending_reason("AssocGrpGRES").kind
    (<WaitKind.NEVER: 'never'>, <WaitKind.LIMIT: 'limit'>)
    """
    known = _REASONS.get(name) or _resource_limit(name) or _count_limit(name)
    return known or Reason(WaitKind.OTHER, "{reason}")


def _resource_limit(name: str) -> Reason | None:
    match = _LIMIT.fullmatch(name)
    if match is None:
        return None
    what, column, options = _RESOURCES[match["what"]]
    owner, per = _OWNERS[match["owner"]], match["per"]
    if match["which"] == "Min":
        text = f"it asks for less {what} than {owner} demands"
        return Reason(WaitKind.NEVER, text, f"Ask for more ({options}), or for another QOS (--qos).", column)
    if match["which"] == "Max" and per in ("PerJob", "PerNode"):
        where = "on a node" if per == "PerNode" else "in one job"
        times = " × time" if match["minutes"] else ""
        text = f"it asks for more {what}{times} than {owner} allows {where}"
        also = ", --time" if match["minutes"] else ""
        return Reason(WaitKind.NEVER, text, f"Ask for less ({options}{also}), or for another QOS (--qos).", column)
    if match["minutes"] == "Minutes":
        text = f"{owner} has used up its budget of {what} × time"
    elif match["minutes"]:
        text = f"the running jobs of {owner} hold as much {what} × time as they may"
    else:
        text = f"{'this user holds' if per == 'PerUser' else 'the running jobs hold'} as much of {what} as {owner} allows"
    return Reason(WaitKind.LIMIT, text, "", column)


def _count_limit(name: str) -> Reason | None:
    jobs, wall, account = _JOBS.fullmatch(name), _WALL.fullmatch(name), _PER_ACCOUNT.fullmatch(name)
    if jobs is not None:
        have = "have been submitted" if jobs["submit"] else "run"
        return Reason(WaitKind.LIMIT, f"as many jobs {have} as {_OWNERS[jobs['owner']]} allows")
    if wall is not None and wall["which"] == "Max":
        text = f"its time limit{{time_limit}} is above the limit of {_OWNERS[wall['owner']]}"
        return Reason(WaitKind.NEVER, text, "Ask for less time (--time), or for another QOS (--qos).", "time_limit_s")
    if wall is not None:
        return Reason(WaitKind.LIMIT, f"{_OWNERS[wall['owner']]} has used the time that it may use")
    if account is not None:
        what = "jobs" if "Jobs" in account["what"] else _RESOURCES[account["what"]][0]
        return Reason(WaitKind.LIMIT, f"account {{account}} holds as much of {what} as QOS {{qos}} allows one account")
    return None
