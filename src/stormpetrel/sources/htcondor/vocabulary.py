"""HTCondor's vocabulary: numbers and names of events, and the attributes that tell where an event happened.

The one place for what every reader of HTCondor has to know: event logs, the history, tables, and documents in Elasticsearch.
"""

from __future__ import annotations

import re
from typing import Final

from stormpetrel.records.events import EventKind

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
