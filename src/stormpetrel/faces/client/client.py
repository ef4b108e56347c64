"""The client: one method per endpoint of the API, typed.

Client(url, token) -> predict, check_script, jobs, job, trends, …
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, Unpack
from urllib.parse import quote

from pydantic import ValidationError

from stormpetrel import __version__
from stormpetrel.answers.schemas.actions import ActionsStatus, ActLine, ActMode, SwitchLine
from stormpetrel.answers.schemas.alarms import CaseList, CaseReceipt, IncidentList, RehearsalAnswer
from stormpetrel.answers.schemas.base import Answer
from stormpetrel.answers.schemas.cluster import Capacity, ClusterCounts, ClusterNow, ClusterOutages
from stormpetrel.answers.schemas.health import Health, NowAnswer, Version
from stormpetrel.answers.schemas.history import CancelPolicy, QualityAnswer, Trends, Waste
from stormpetrel.answers.schemas.incident import Act, ActReceipt, IncidentAnswer, MuteLine, MuteReceipt
from stormpetrel.answers.schemas.job import Explanation, JobAdvice, JobInFull
from stormpetrel.answers.schemas.job_studies import Profiles
from stormpetrel.answers.schemas.jobs import JobPage, JobRow
from stormpetrel.answers.schemas.nodes import NodeFindings, Nodes, WindowTraces
from stormpetrel.answers.schemas.own import OwnTokenLine, View
from stormpetrel.answers.schemas.personal import DigestChoice, PersonalSummary
from stormpetrel.answers.schemas.predictions import Prediction, ScriptAnswer
from stormpetrel.answers.schemas.registry import Training, TrainingInFull
from stormpetrel.answers.schemas.workload import WorkloadAnswer
from stormpetrel.errors import SourceFormatError
from stormpetrel.faces.client.connection import Connection
from stormpetrel.faces.client.requests import JobFilter, PredictionFields, WorkloadFields

if TYPE_CHECKING:
    import httpx

A = TypeVar("A", bound=Answer)
_AT_ONCE: Final = 2000  # requests per request: what the server reads at once is limited
_LONGEST_SCRIPT: Final = 300_000


class Client:
    """A Stormpetrel server, seen from a program.

    Parameters
    ----------
    url
        Where it answers, such as http://127.0.0.1:8050.
    token
        Made by `stormpetrel tokens add`; not needed on the server's own machine where the site asks for no login.
    timeout_s
        A request that takes longer is given up.
    retries
        How often a request is sent again after "too many requests", "busy" or a refused connection.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 60.0,
        retries: int = 4,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._server = Connection(url, token, timeout_s=timeout_s, retries=retries, transport=transport, sleep=sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._server.url!r})"

    def close(self) -> None:
        """Give the connection back."""
        self._server.close()

    def _read(self, model: type[A], data: Any) -> A:
        """What the server said as an answer; what another version of it adds is left out."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise SourceFormatError(
                f"{self._server.url} answers in a way that this version ({__version__}) does not know: "
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}.",
                hint="Install the version that the server has: Client.version() tells it.",
            ) from None

    def _read_list(self, model: type[A], data: Any) -> list[A]:
        return [self._read(model, item) for item in data]

    def predict(self, *, explain: bool = False, **request: Unpack[PredictionFields]) -> Prediction:
        """How likely a job is to fail, if it were submitted now; with `explain` also why."""
        data = self._server.request("POST", "/predict", query={"explain": explain}, body=request)
        return self._read(Prediction, data)

    def predict_many(self, requests: Sequence[PredictionFields]) -> list[Prediction]:
        """How likely each of these jobs is to fail, in the same order; as many as you like."""
        predictions: list[Prediction] = []
        for first in range(0, len(requests), _AT_ONCE):
            part = list(requests[first : first + _AT_ONCE])
            predictions += self._read_list(Prediction, self._server.request("POST", "/predict/many", body=part)["predictions"])
        return predictions

    def check_script(
        self, path: str | Path, *, user: str | None = None, kind: str | None = None, folder: str | Path | None = None
    ) -> ScriptAnswer:
        """The check of a job script, as if it were submitted now from `folder` (the current one)."""
        text = Path(path).read_bytes()[: 4 * _LONGEST_SCRIPT].decode("utf-8", "replace")
        return self.check_text(text, name=str(path), user=user, kind=kind, folder=folder)

    def check_text(
        self,
        text: str,
        *,
        name: str = "job.sh",
        user: str | None = None,
        kind: str | None = None,
        folder: str | Path | None = None,
    ) -> ScriptAnswer:
        """The same about the text of a script."""
        body = {"text": text[:_LONGEST_SCRIPT], "name": name, "folder": str(folder or Path.cwd())}
        chosen = {key: value for key, value in (("user", user), ("kind", kind)) if value is not None}
        return self._read(ScriptAnswer, self._server.request("POST", "/predict/script", body=body | chosen))

    def jobs(
        self, *, sort: str | Sequence[str] = "submit_time", page_size: int = 1000, **chosen: Unpack[JobFilter]
    ) -> Iterator[JobRow]:
        """Every job that you may see and that fits, page by page as they are requested; the oldest first."""
        page = 1
        while True:
            answer = self.jobs_page(page=page, limit=page_size, sort=sort, **chosen)
            yield from answer.items
            if answer.next is None:
                return
            page += 1

    def jobs_page(
        self, *, page: int = 1, limit: int = 100, sort: str | Sequence[str] = "-submit_time", **chosen: Unpack[JobFilter]
    ) -> JobPage:
        """One page of jobs, and how many there are in all."""
        query = {name: _in_link(value) for name, value in chosen.items()}
        data = self._server.request("GET", "/jobs", query={"page": page, "limit": limit, "sort": _in_link(sort), **query})
        return self._read(JobPage, data)

    def find(self, text: str) -> list[JobRow]:
        """Jobs by their id, the latest first: `12345`, `12345_7`, or part of a name."""
        return self._read_list(JobRow, self._server.request("GET", "/find", query={"id": text})["items"])

    def job(self, ref: str) -> JobInFull:
        """One job in full, by its `ref`."""
        return self._read(JobInFull, self._server.request("GET", f"/jobs/{_in_path(ref)}"))

    def explanation(self, ref: str) -> Explanation:
        """The predictions for a job at each of its moments, and why."""
        return self._read(Explanation, self._server.request("GET", f"/jobs/{_in_path(ref)}/explanation"))

    def advice(self, ref: str) -> JobAdvice:
        """What to ask for instead, or next time."""
        return self._read(JobAdvice, self._server.request("GET", f"/jobs/{_in_path(ref)}/advice"))

    def trends(
        self, *, by: str = "user", every: str = "1w", group: str | None = None, top: int = 10, last: int | None = None
    ) -> Trends:
        """Failure rates over time, by user, account, application, node, profile or partition."""
        query = {"by": by, "every": every, "group": group, "top": top, "last": last}
        return self._read(Trends, self._server.request("GET", "/trends", query=query))

    def waste(self, *, by: str = "user", weeks: int | None = None) -> Waste:
        """Core-hours lost to failed jobs, in core-seconds."""
        return self._read(Waste, self._server.request("GET", "/waste", query={"by": by, "weeks": weeks}))

    def cancel_policy(self, *, price: float = 1.0, threshold: float | None = None) -> CancelPolicy:
        """What cancelling two minutes in would have saved, at each threshold."""
        data = self._server.request("GET", "/cancel-policy", query={"price": price, "threshold": threshold})
        return self._read(CancelPolicy, data)

    def profiles(self) -> Profiles:
        """The kinds of jobs that the site runs."""
        return self._read(Profiles, self._server.request("GET", "/profiles"))

    def quality(self, *, moment: str | None = None, version: int | None = None, every: str = "1d") -> QualityAnswer:
        """How good the forecasts have been."""
        query = {"moment": moment, "version": version, "every": every}
        return self._read(QualityAnswer, self._server.request("GET", "/quality", query=query))

    def now(self) -> NowAnswer:
        """Whether to act: open incidents, jobs at risk, nodes, the newest hour of events, the lag of each source."""
        return self._read(NowAnswer, self._server.request("GET", "/now"))

    def health(self) -> Health:
        """Health of the site."""
        return self._read(Health, self._server.request("GET", "/health"))

    def version(self) -> Version:
        """What answers there."""
        return self._read(Version, self._server.request("GET", "/version"))

    def nodes(
        self,
        *,
        span: str = "day",
        campaign: str | None = None,
        job_type: str | None = None,
        node: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 100,
    ) -> Nodes:
        """The nodes with threads that behave unlike what the model has learnt, and the windows with the highest scores."""
        query = {
            "span": span, "campaign": campaign, "job_type": job_type, "node": node, "since": _in_link(since),
            "until": _in_link(until), "limit": limit,
        }  # fmt: skip
        return self._read(Nodes, self._server.request("GET", "/nodes", query=query))

    def node_findings(self) -> NodeFindings:
        """What is unusual on the nodes now, in sentences, with threads, mode, time and past windows like it."""
        return self._read(NodeFindings, self._server.request("GET", "/nodes/findings"))

    def window(self, key: str) -> WindowTraces:
        """One window by its `key`: its trace, its reconstruction, and the threads around it."""
        return self._read(WindowTraces, self._server.request("GET", f"/nodes/windows/{_in_path(key)}"))

    def grid(self) -> ClusterNow:
        """Whether the cluster is in normal operation now, and what is wrong."""
        return self._read(ClusterNow, self._server.request("GET", "/grid"))

    def grid_counts(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None, limit: int = 1000
    ) -> ClusterCounts:
        """Events of each kind per bucket of time, with what was expected; of the last day where no time is named."""
        query = {"since": _in_link(since), "until": _in_link(until), "limit": limit}
        return self._read(ClusterCounts, self._server.request("GET", "/grid/counts", query=query))

    def grid_outages(self, *, since: datetime | str | None = None, until: datetime | str | None = None) -> ClusterOutages:
        """Outages and maintenance, whether an alarm was raised, and every alarm; the newest first."""
        query = {"since": _in_link(since), "until": _in_link(until)}
        return self._read(ClusterOutages, self._server.request("GET", "/grid/outages", query=query))

    def capacity(self, *, cores: float | None = None) -> Capacity:
        """Load by week, growth, and when the queue will hurt; of a cluster with so many cores, or the most that ran at once."""
        return self._read(Capacity, self._server.request("GET", "/capacity", query={"cores": cores}))

    def workload(self) -> WorkloadAnswer:
        """Which generator of the workload is in use, and how good it is; administrators only."""
        return self._read(WorkloadAnswer, self._server.request("GET", "/workload"))

    def sample_workload(self, path: str | Path, **wish: Unpack[WorkloadFields]) -> int:
        """Make new jobs and write them to a file; how many there are. Administrators only.

        `jobs` or `days` says how many, `format` in which form (swf, sacct, csv, parquet); `start` is ISO text with its zone.
        """
        headers = self._server.download("POST", "/workload/sample", Path(path), body=wish)
        return int(headers.get("x-stormpetrel-jobs", 0))

    def alarms(
        self,
        *,
        state: str = "open",
        since: datetime | str | None = None,
        severity: str | None = None,
        family: str | None = None,
        limit: int = 100,
    ) -> IncidentList:
        """Incidents, the newest first: those that are not over, or with `state="all"` also those that are.

        `severity` names the lowest that is wanted: info, warning or page.
        """
        query = {"state": state, "since": _in_link(since), "severity": severity, "family": family, "limit": limit}
        return self._read(IncidentList, self._server.request("GET", "/alarms", query=query))

    def replay_alarms(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None, models: bool = True
    ) -> IncidentList:
        """What a watch would have raised in a part of the past, and when: all of it, or from `since` up to `until`.

        Months take a while: give the client a long `timeout_s`, or leave the models of events out.
        """
        query = {"since": _in_link(since), "until": _in_link(until), "models": models}
        return self._read(IncidentList, self._server.request("GET", "/alarms/replay", query=query))

    def alarm(self, number: int) -> IncidentAnswer:
        """One incident in full: evidence, time line, what people did, lost jobs, similar past incidents."""
        return self._read(IncidentAnswer, self._server.request("GET", f"/alarms/{number}"))

    def rehearsal(self, *, live: bool = False) -> RehearsalAnswer:
        """Which faults the watch would see, as it was rehearsed last, in the past or beside the live stream; admins only."""
        return self._read(RehearsalAnswer, self._server.request("GET", "/alarms/rehearsal", query={"live": live}))

    def cases(self, limit: int = 10) -> CaseList:
        """The cases whose answer teaches most, also from below the threshold; administrators only."""
        return self._read(CaseList, self._server.request("GET", "/alarms/cases", query={"limit": limit}))

    def answer_case(self, case: str, answer: Literal["confirm", "dismiss", "withdraw"], note: str = "") -> CaseReceipt:
        """Say what a case was: real trouble, none, or take the answer back; administrators only."""
        body = {"case": case, "answer": answer, "note": note}
        return self._read(CaseReceipt, self._server.request("POST", "/alarms/cases", body=body))

    def act_on_alarm(self, number: int, kind: Act, note: str = "") -> ActReceipt:
        """Keep what you did to an incident: acknowledge, confirm, dismiss or note; administrators only."""
        return self._read(ActReceipt, self._server.request("POST", f"/alarms/{number}/acts", body={"kind": kind, "note": note}))

    def acknowledge(self, number: int, note: str = "") -> ActReceipt:
        """Say that you look after an incident; administrators only."""
        return self.act_on_alarm(number, "acknowledge", note)

    def confirm(self, number: int, note: str = "") -> ActReceipt:
        """Say that an incident is one; administrators only."""
        return self.act_on_alarm(number, "confirm", note)

    def dismiss(self, number: int, note: str = "") -> ActReceipt:
        """Say that an incident is none: it is over; administrators only."""
        return self.act_on_alarm(number, "dismiss", note)

    def withdraw(self, number: int, note: str = "") -> ActReceipt:
        """Take back the verdict on an incident, with what it taught; administrators only."""
        return self.act_on_alarm(number, "withdraw", note)

    def note(self, number: int, text: str) -> ActReceipt:
        """Write something to an incident; administrators only."""
        return self.act_on_alarm(number, "note", text)

    def mutes(self) -> list[MuteLine]:
        """What nothing is sent about now; administrators only."""
        return self._read_list(MuteLine, self._server.request("GET", "/alarms/mutes")["mutes"])

    def mute(
        self,
        kind: str,
        name: str,
        *,
        hours: float | None = None,
        until: datetime | str | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> MuteReceipt:
        """Send nothing about a subject (`mute("node", "n017", hours=8)`) for a time; administrators only."""
        body = {"kind": kind, "name": name, "hours": hours, "until": _in_link(until), "reason": reason, "cluster": cluster}
        return self._read(MuteReceipt, self._server.request("POST", "/alarms/mutes", body=body))

    def unmute(self, mute: int) -> None:
        """End a mute by its `id`; administrators only."""
        self._server.request("DELETE", f"/alarms/mutes/{mute}")

    def actions(self) -> ActionsStatus:
        """Whether anything may be done, and every policy with its ledger; administrators only."""
        return self._read(ActionsStatus, self._server.request("GET", "/actions"))

    def acts(self, *, policy: str | None = None, mode: ActMode | None = None, limit: int = 100) -> list[ActLine]:
        """Decisions and actions, the newest first; users see what concerns their own jobs."""
        chosen = {key: value for key, value in (("policy", policy), ("mode", mode)) if value is not None}
        return self._read_list(ActLine, self._server.request("GET", "/actions/acts", query={"limit": limit, **chosen})["acts"])

    def turn_actions(self, *, on: bool, why: str = "") -> SwitchLine:
        """Stop everything at once (`on=False`), or let armed policies and people act again; administrators only."""
        return self._read(SwitchLine, self._server.request("POST", "/actions/switch", body={"on": on, "why": why}))

    def cancel_job(self, ref: str, *, confirm: str) -> ActLine:
        """Cancel a job, with its id once more as `confirm`; `state` of the answer says what became of it."""
        return self._read(ActLine, self._server.request("POST", f"/jobs/{_in_path(ref)}/cancel", body={"confirm": confirm}))

    def models(self) -> list[Training]:
        """Every training that is kept, newest first."""
        return self._read_list(Training, self._server.request("GET", "/models")["trainings"])

    def model(self, training: str) -> TrainingInFull:
        """One training with its models."""
        return self._read(TrainingInFull, self._server.request("GET", f"/models/{_in_path(training)}"))

    def promote(self, training: str) -> Training:
        """Put a training in use; administrators only."""
        return self._read(Training, self._server.request("POST", f"/models/{_in_path(training)}/promote"))

    def roll_back(self) -> Training:
        """Put the training in use that was in use before; administrators only."""
        return self._read(Training, self._server.request("POST", "/models/rollback"))

    def give_opinion(self, ref: str, advice: str, *, useful: bool) -> None:
        """Say whether a piece of advice on a job was useful."""
        self._server.request("POST", "/opinions", body={"job": ref, "advice": advice, "useful": useful})

    def views(self) -> list[View]:
        """Your saved views."""
        return self._read_list(View, self._server.request("GET", "/views")["views"])

    def save_view(self, name: str, link: str) -> View:
        """Give a link into the dashboard a name."""
        return self._read(View, self._server.request("PUT", f"/views/{_in_path(name)}", body={"link": link}))

    def delete_view(self, name: str) -> None:
        """Delete a saved view."""
        self._server.request("DELETE", f"/views/{_in_path(name)}")

    def me(self, *, weeks: Literal[1, 4, 12, 52] = 4, user: str | None = None) -> PersonalSummary:
        """Your own page, of jobs that ended in the last weeks; that of another user is for administrators."""
        return self._read(PersonalSummary, self._server.request("GET", "/me", query={"weeks": weeks, "user": user}))

    def choose_digest(self, *, wanted: bool, address: str | None = None) -> DigestChoice:
        """Ask for the weekly digest by mail, or give it up."""
        body = {"wanted": wanted, "address": address}
        return self._read(DigestChoice, self._server.request("PUT", "/me/digest", body=body))

    def tokens(self) -> list[OwnTokenLine]:
        """Your tokens, also those past their time; not the tokens themselves."""
        return self._read_list(OwnTokenLine, self._server.request("GET", "/tokens")["tokens"])

    def revoke_token(self, name: str) -> None:
        """Make one of your tokens worthless. They are made on a machine of the cluster: `stormpetrel tokens create`."""
        self._server.request("DELETE", f"/tokens/{_in_path(name)}")


def _in_path(text: str) -> str:
    return quote(text, safe="")


def _in_link(value: Any) -> Any:
    """A value of a filter as it stands in a link; times in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
