"""HTCondor's vocabulary: numbers and names of events, and the attributes that tell where an event happened.

The one place for what every reader of HTCondor has to know: event logs, the history, tables, and documents in Elasticsearch.
"""

from __future__ import annotations

import re
from typing import Final

from stormpetrel.records.events import EventKind
from stormpetrel.records.states import JobState

# ULogEventNumber, of condor_event.h.
SUBMIT, EXECUTE, EVICTED, TERMINATED, IMAGE_SIZE, SHADOW_EXCEPTION = 0, 1, 4, 5, 6, 7
ABORTED, SUSPENDED, UNSUSPENDED, HELD, RELEASED, DISCONNECTED, RECONNECTED = 9, 10, 11, 12, 13, 22, 23
REMOTE_ERROR, RECONNECT_FAILED, AD_INFORMATION = 21, 24, 28

ENDS_RUN: Final = (EVICTED, TERMINATED, SHADOW_EXCEPTION, ABORTED, HELD, RECONNECT_FAILED)
# These name a host in an attribute of text: it is that of the event, the job may not run there any more.
HOST_IN_TEXT: Final = {SHADOW_EXCEPTION: "Message", HELD: "HoldReason", REMOTE_ERROR: "ExecuteHost"}

# The names are those of HTCondor's classes without `Event`. A number that is not here is kept as `Event099`.
KIND_NAMES: Final = {
    0: EventKind.SUBMIT, 1: EventKind.EXECUTE, 2: "ExecutableError", 3: "Checkpointed", 4: EventKind.EVICTED,
    5: EventKind.TERMINATED, 6: EventKind.IMAGE_SIZE, 7: EventKind.SHADOW_EXCEPTION, 8: "Generic", 9: EventKind.ABORTED,
    10: EventKind.SUSPENDED, 11: EventKind.UNSUSPENDED, 12: EventKind.HELD, 13: EventKind.RELEASED, 14: "NodeExecute",
    15: "NodeTerminated", 16: "PostScriptTerminated", 17: "GlobusSubmit", 18: "GlobusSubmitFailed", 19: "GlobusResourceUp",
    20: "GlobusResourceDown", 21: EventKind.REMOTE_ERROR, 22: EventKind.DISCONNECTED, 23: EventKind.RECONNECTED,
    24: EventKind.RECONNECT_FAILED, 25: "GridResourceUp", 26: "GridResourceDown", 27: "GridSubmit", 28: "JobAdInformation",
    29: "JobStatusUnknown", 30: "JobStatusKnown", 31: "JobStageIn", 32: "JobStageOut", 33: "AttributeUpdate", 34: "PreSkip",
    35: "ClusterSubmit", 36: "ClusterRemove", 37: "FactoryPaused", 38: "FactoryResumed", 39: "None", 40: "FileTransfer",
    41: "ReserveSpace", 42: "ReleaseSpace", 43: "FileComplete", 44: "FileUsed", 45: "FileRemoved", 46: "DataflowJobSkipped",
    47: "CommonFiles",
}  # fmt: skip
AD_INFORMATION_NAME: Final = KIND_NAMES[AD_INFORMATION]
_OTHER_NAMES: Final = {"jobreleased": EventKind.RELEASED}  # ULOG_JOB_RELEASED is the class JobReleaseEvent

# The attributes that tell each place (PLACES), the best first: the name of a slot is better than the address of its daemon.
PLACE_ATTRIBUTES: Final = {
    "site": ("MachineAttrGLIDEIN_Site0", "GLIDEIN_Site", "JOB_Site"),
    "submit_host": ("SubmitHost",),
    "group": ("Jobsub_Group", "AcctGroup"),
    "node": ("SlotName", "RemoteHost", "ExecuteHost"),
}

_SINFUL: Final = re.compile(r"<([^:>?]+)(?::\d+)?(?:\?([^>]*))?>")
_LONGEST_NAME: Final = 200


# A ClassAd has 150 attributes, its owner's environment (and the secrets in it) among them: these are worth keeping.
KEPT: Final = (
    "RequestDisk", "DiskUsage", "ImageSize", "RemoveReason", "HoldReason", "HoldReasonCode", "HoldReasonSubCode",
    "LastHoldReason", "LastHoldReasonCode", "LastHoldReasonSubCode", "VacateReason", "VacateReasonCode", "ExitReason",
    "NumShadowStarts", "NumJobStarts", "NumHolds", "TotalSuspensions", "CumulativeSuspensionTime", "JobUniverse", "JobPrio",
    "JobCurrentStartDate", "GlobalJobId", "User", "DAGManJobId", "DAGNodeName", "Jobsub_Group", "MachineAttrGLIDEIN_Site0",
    "MATCH_EXP_JOBGLIDEIN_Site", "BytesSent", "BytesRecvd", "CpusUsage", "GPUsUsage",
)  # fmt: skip
MAX_KEPT: Final = 4096
# condor_holdcodes.h. Of "out of resources" the subcode tells disk (104) from memory (102; 0 before it was told).
_HELD_OUT_OF_RESOURCES, _SUBCODE_DISK, _HELD_FOR_DURATION = 34, 104, (46, 47)
_TOO_MUCH: Final = r"exceed|gone over|went over|over the|limit|too (?:much|long|many)|more than|out of|>"
_MEMORY: Final = re.compile(r"memory|ResidentSetSize|\brss\b", re.IGNORECASE)
_DURATION: Final = re.compile(
    r"wall[ -]?(?:clock|time)|run[ -]?time|\bduration|JobDuration|ExecuteDuration|time limit|(?:ran|running) (?:for )?too long"
    r"|Job(?:Current)?Start(?:Executing)?Date",
    re.IGNORECASE,
)
_LIMIT_NAMES: Final = re.compile(_TOO_MUCH, re.IGNORECASE)
_BY_USER: Final = re.compile(r"\(by user ([^()\s]+)\)")


def kind_of_number(number: int) -> str:
    """The name of an event's number (0 to 999)."""
    return str(KIND_NAMES.get(number, f"Event{number:03}"))


def kind_name(text: str) -> str:
    """The kind of an event by any of its names: number, class, or ULOG_ name; one that nobody knows as it is written.

    "" where nothing is left of the name.

    >>> kind_name("12"), kind_name("JobHeldEvent"), kind_name("ULOG_JOB_HELD"), kind_name("ULOG_IMAGE_SIZE")
    ('JobHeld', 'JobHeld', 'JobHeld', 'JobImageSize')
    """
    name = text.strip().strip('"')
    if name.isascii() and name.isdigit() and len(name) <= 3:
        return kind_of_number(int(name))
    if name.startswith("ULOG_"):
        parts = name.removeprefix("ULOG_").split("_")
        letters = "".join(parts).lower()
        known = (str(kind) for kind in KIND_NAMES.values() if str(kind).lower() in (letters, f"job{letters}"))
        return str(_OTHER_NAMES.get(letters) or next(known, "".join(part.capitalize() for part in parts)))
    plain = name.removesuffix("Event").strip()
    return str(_OTHER_NAMES.get(plain.lower(), plain))


def host_of_slot(slot: str | None) -> str | None:
    """The host of `slot1_2@node7`, `slot1@glidein_3@node7` or `node7`."""
    return (slot or "").rpartition("@")[2] or None


def host_of_address(address: str) -> str:
    """The host of `<10.0.0.7:9618?alias=node7&…>`: its alias, or its address. Any other text as it is."""
    parts = _SINFUL.match(address)
    if not parts:
        return address
    options = dict(part.split("=", 1) for part in (parts[2] or "").split("&") if "=" in part)
    return options.get("alias") or parts[1]


def host_name(text: str) -> str:
    """The host of an address, or any other name, as printable text of at most 200 characters."""
    text = host_of_address(text)
    if not text.isprintable():
        text = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
    return text.strip()[:_LONGEST_NAME]


def removed_state(reason: str | None, *, hold_code: int | None = None, hold_subcode: int | None = None) -> JobState:
    """Why a job was removed: OUT_OF_MEMORY or TIMEOUT where the reason (or the hold it was removed from) says so, else CANCELLED.

    HTCondor puts a job that outgrows its memory on hold, and its user or a policy removes it from there. A reason that names
    memory and run time both, as a policy with two conditions does, tells nothing.
    """
    if hold_code == _HELD_OUT_OF_RESOURCES and hold_subcode != _SUBCODE_DISK:
        return JobState.OUT_OF_MEMORY
    if hold_code in _HELD_FOR_DURATION:
        return JobState.TIMEOUT
    if not reason or not _LIMIT_NAMES.search(reason):
        return JobState.CANCELLED
    memory, duration = _MEMORY.search(reason), _DURATION.search(reason)
    if memory and not duration:
        return JobState.OUT_OF_MEMORY
    return JobState.TIMEOUT if duration and not memory else JobState.CANCELLED


def removed_by(reason: str | None) -> str | None:
    """Who removed a job, out of `via condor_rm (by user wren)`."""
    match = _BY_USER.search(reason or "")
    return match.group(1) if match else None
