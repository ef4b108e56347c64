"""The nearest past incidents: what was like this before.

Incident + past incidents -> nearest -> Likeness, the nearest first.

The distance of two incidents is a sum: 1 if they have no kind of finding in common, ½ if they have some but not what tells most;
1 if they have no subject in common, ½ if they have some but not what they are about; ½ if another is suspected. 0 is the same
trouble again, 2½ has nothing in common. What shares neither kind nor subject is not similar, whoever is suspected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stormpetrel.records.findings import FindingKind, Subject
from stormpetrel.records.incidents import LEADING, Incident

MOST: Final = 3
_PARTLY: Final = 0.5
_OTHER_BLAME: Final = 0.5


@dataclass(frozen=True, slots=True)
class Likeness:
    """A past incident, how far it is (0 to 2.5), and what the two have in common."""

    incident: Incident
    distance: float
    kinds: tuple[FindingKind, ...]
    subjects: tuple[Subject, ...]
    same_blame: bool


def nearest(incident: Incident, past: Iterable[Incident], *, most: int = MOST) -> list[Likeness]:
    """Return the nearest of the incidents before this one, the nearest first; of equally near ones the newest first."""
    earlier = (other for other in past if other.id < incident.id and other.cluster == incident.cluster)
    alike = [likeness for other in earlier if (likeness := _likeness(incident, other)).kinds or likeness.subjects]
    return sorted(alike, key=lambda similar: (similar.distance, -similar.incident.id))[:most]


def _likeness(incident: Incident, other: Incident) -> Likeness:
    kinds = tuple(kind for kind in incident.kinds if kind in other.kinds)
    subjects = tuple(subject for subject in incident.subjects if subject in other.subjects)
    same_blame = incident.blame == other.blame
    of_kind = 0.0 if _leading(incident) == _leading(other) else _PARTLY if kinds else 1.0
    of_subject = 0.0 if _about(incident) & _about(other) else _PARTLY if subjects else 1.0
    distance = of_kind + of_subject + (0.0 if same_blame else _OTHER_BLAME)
    return Likeness(other, distance, kinds, subjects, same_blame)


def _leading(incident: Incident) -> FindingKind:
    return min(incident.kinds, key=LEADING.index)


def _about(incident: Incident) -> set[Subject]:
    """What the findings that tell most are about."""
    return {finding.subject for finding in incident.findings if finding.kind == _leading(incident)}
