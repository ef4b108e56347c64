"""Checks of acting, for the doctor: the switch, what each policy may do, and the rights that it lacks.

Site -> check_actions -> Finding. Nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from stormpetrel.errors import SourceError
from stormpetrel.records.actions.policies import Policy
from stormpetrel.records.checks import Finding
from stormpetrel.store.site import Site
from stormpetrel.watch.actions.catch import actor_for
from stormpetrel.watch.actions.owner_mail import MAIL, mail_problem, needed_for_mail

_CHECK: Final = "actions"
_LONG: Final = timedelta(minutes=30)


def check_actions(site: Site) -> Iterator[Finding]:
    """The switch, policies with their rights, and acts of which it is not known what became of them."""
    policies = site.settings.actions.policies
    if not policies and site.settings.actions.cancel_by == "nobody":
        yield Finding(
            "ok", _CHECK, "there are no [[actions.policies]]: nothing is done by itself, and nobody cancels jobs from here"
        )
        return
    switch = site.actions.switch()
    if not switch.is_on:
        by = f" by {switch.by}" if switch.by else ""
        yield Finding("warning", _CHECK, f"Acting is switched off{by}: nothing is done.", "Switch it on: stormpetrel actions on")
    armings = site.actions.armings(policies, site.now())
    for policy in policies:
        yield _policy(site, policy, is_armed=armings[policy.name].armed is not None)
    left = [act for act in site.actions.unfinished() if site.now() - act.decided > _LONG]
    if left:
        what = f"Of {len(left):,} act{'' if len(left) == 1 else 's'} it is not known what became of it."
        yield Finding("warning", _CHECK, what, "The next start of the watch brings them to an end: stormpetrel actions list")


def _policy(site: Site, policy: Policy, *, is_armed: bool) -> Finding:
    how = "is armed" if is_armed else "runs dry"
    missing = missing_right(site, policy)
    if missing:
        what = f"Policy '{policy.name}' {how} and could do nothing: {missing}"
        return Finding("problem" if is_armed else "warning", _CHECK, what, "")
    return Finding("ok", _CHECK, f"policy '{policy.name}' ({policy.action}) {how}")


def missing_right(site: Site, policy: Policy) -> str:
    """Why a policy could do nothing, in a sentence; empty where it has the right that it needs."""
    try:
        actor = actor_for(site, "", "")
        return mail_problem(site) if policy.through == MAIL else actor.missing_right(policy.kind)
    except SourceError as error:
        return error.what


def needed_right(site: Site, policy: Policy) -> str:
    """The right that a policy needs at the scheduler; empty where there is none to ask."""
    if policy.through == MAIL:
        return needed_for_mail(site)
    try:
        actor = actor_for(site, "", "")
    except SourceError:
        return ""
    return f"{actor.name}: {actor.needed_right(policy.kind)}"
