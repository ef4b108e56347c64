"""The doctor: what is wrong with a site, and what to do about it.

Site -> examine -> findings -> summary. Each check is one function; none changes anything but a probe file it removes again.
"""

from stormpetrel.store.doctor.examination import examine
from stormpetrel.store.doctor.findings import Finding, Level, summary, worst

__all__ = ["Finding", "Level", "examine", "summary", "worst"]
