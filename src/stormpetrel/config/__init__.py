"""Settings: site.toml, typed and checked.

site.toml -> load_settings -> Settings. Every key has a default; an unknown key or a wrong type is one clear sentence.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
import typing
from pathlib import Path
from typing import Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from stormpetrel.config.energy import EnergySection
from stormpetrel.config.families import EventsSection, JobsSection, TracesSection
from stormpetrel.config.mail import MailSection
from stormpetrel.config.servers import (
    ElasticSection,
    GrafanaSection,
    GraphiteSection,
    HtcondorSection,
    PrometheusSection,
    Section,
    SlurmSection,
)
from stormpetrel.engine.places import is_place
from stormpetrel.errors import SettingsError
from stormpetrel.records.actions.policies import ActionsSection
from stormpetrel.records.routes import EMAIL, Route, check_address

__all__ = [
    "AlarmsSection",
    "ElasticSection",
    "EnergySection",
    "EngineSection",
    "EventsSection",
    "GrafanaSection",
    "GraphiteSection",
    "HtcondorSection",
    "JobsSection",
    "MailSection",
    "NightlySection",
    "NotifySection",
    "PrometheusSection",
    "SITE_FILE",
    "ServeSection",
    "Settings",
    "SiteSection",
    "SlurmSection",
    "StoreSection",
    "TracesSection",
    "WatchSection",
    "load_settings",
    "parse_settings",
    "settings_as_toml",
    "settings_from",
    "table_type",
]

SITE_FILE = "site.toml"


@functools.cache
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones())  # which looks through some 1,800 files: not for every site that is opened


class SiteSection(Section):
    """What the site is."""

    name: str = Field(default="my cluster", description="how the site is called in reports")
    time_zone: str = Field(default="UTC", description="zone of the times that the schedulers print, such as Europe/Berlin")
    cluster: str = Field(default="", description="cluster of records that name none; empty: the server's name, else 'cluster'")
    feed: str = Field(default="", description="folder of a simulated feed: the site then lives by its clock, at any speed")

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        if zone != "UTC" and zone not in _known_zones():
            close = difflib.get_close_matches(zone, _known_zones(), n=1)
            hint = f", did you mean '{close[0]}'?" if close else ", expected a name such as Europe/Berlin"
            raise ValueError(f"'{zone}' is not a time zone{hint}")
        ZoneInfo(zone)
        return zone


class StoreSection(Section):
    """Where the site's memory is kept."""

    state_dir: str = Field(default="", description="folder of state.db if not the site's own; must be on a local disk")
    state_url: str = Field(default="", description="postgresql://… when several hosts write; empty: SQLite in state_dir")
    keep_days: int = Field(default=0, ge=0, description="`store retain` deletes jobs submitted longer ago than this; 0 keeps all")
    pseudonymise_users: bool = Field(default=False, description="store a keyed pseudonym in place of each user name")


class WatchSection(Section):
    """The live loop."""

    poll_s: float = Field(default=5.0, ge=0.2, le=3600, description="seconds between two polls of the scheduler")
    patience_s: float = Field(
        default=15.0, ge=1, le=3600, description="a poll that takes this long, or is this late, is reported as a problem"
    )
    overlap_minutes: float = Field(
        default=10.0, ge=0, description="how far back each look reads again, for records that come late; slurm.overlap_hours once"
    )
    replay_days: float = Field(
        default=7.0, ge=0, description="a first watch also judges jobs that came after the training, at most this far back"
    )
    address: str = Field(default="127.0.0.1:9642", description="where /metrics, /healthz and /readyz answer; empty: nowhere")
    hosts: list[str] = Field(
        default=[], description="names under which Prometheus asks there, besides loopback, the address and this machine's name"
    )
    retrain_hours: float = Field(default=24.0, ge=0, description="hours between two trainings by the watch; 0: never")
    retrain_min_jobs: int = Field(default=200, ge=1, description="jobs that must have ended since the last training")
    quality_days: float = Field(default=30.0, gt=0, description="running quality is that of predictions of this many days")


class NightlySection(Section):
    """Which challengers are trained at night, and what is kept of them."""

    learn_days: list[float] = Field(default=[1.0, 7.0, 0.0], min_length=1, description="spans to learn from; 0: everything")
    trace_models: list[Literal["vanilla", "node_gnn", "job_gnn", "fast"]] = Field(
        default=["fast"], description="architectures of traces that compete, besides the one in use"
    )
    trace_ensemble: int = Field(default=1, ge=1, le=100, description="networks of each, from seeds of their own; published: 10")
    event_models: list[Literal["supervised", "unsupervised", "combined"]] = Field(
        default=["combined", "unsupervised"], description="models of events that compete, besides the one in use"
    )
    group_rows: int = Field(default=50, ge=10, description="a user, type or node with so many judged rows must not fare worse")
    keep_trainings: int = Field(default=10, ge=1, description="newest of a family that are kept; in use, before, shadow: always")

    @field_validator("learn_days")
    @classmethod
    def _known_days(cls, days: list[float]) -> list[float]:
        if not all(0 <= span <= 36_500 for span in days):
            raise ValueError("a span is a number of days from 0 to 36500")
        return days


class AlarmsSection(Section):
    """Incidents, and how many of them are sent at once."""

    pages_per_week: float = Field(
        default=3.0,
        ge=0,
        le=1000,
        description="incidents sent at once, over all families; 0: only what a rule calls a page, uncapped",
    )
    keep_days: int = Field(
        default=90,
        ge=60,
        description="incidents over for longer, not judged and not of the newest 300, are kept in the table `incidents` only",
    )
    halt_training: bool = Field(
        default=False,
        description="train nothing by itself while a confirmed incident is open; else only what it is about is kept out of it",
    )


class ServeSection(Section):
    """The dashboard and the API."""

    address: str = Field(default="127.0.0.1:8050", description="where they answer; another than loopback needs a login")
    socket: str = Field(
        default="",
        description="a Unix socket for users of this machine, such as /run/stormpetrel/api.sock: the kernel says who connects",
    )
    login: Literal["none", "proxy", "token"] = Field(
        default="none", description="none: whoever reaches loopback sees all; proxy: a proxy names the user; token: local tokens"
    )
    proxies: list[str] = Field(
        default=["127.0.0.1", "::1"],
        description="addresses or networks whose forwarded headers are believed; loopback only with login proxy, or the secret",
    )
    user_header: str = Field(default="X-Forwarded-User", description="header in which the proxy names the user")
    proxy_secret_file: str = Field(
        default="",
        description="file (mode 0600) with what the proxy must send as X-Stormpetrel-Proxy; empty: its address is enough",
    )
    admins: list[str] = Field(default=[], description="users who see everybody's jobs")
    hosts: list[str] = Field(default=[], description="host names under which the pages are reached, besides loopback and address")
    prefix: str = Field(default="", description="path under which a proxy shows the pages, such as /node/login1/8050")
    requests_per_minute: int = Field(default=1200, ge=10, description="requests that one viewer may make in a minute")
    own_tokens: int = Field(
        default=10, ge=0, description="tokens that a user has at most, to make another one over the socket; 0: nobody makes any"
    )
    own_token_days: int = Field(default=90, ge=1, le=36_500, description="days for which a user's own token is valid at most")


class SubmitSection(Section):
    """What people see while they submit."""

    show_above: float = Field(default=0.3, ge=0, le=1, description="risk from which sbatch prints two lines; below it is silent")
    refuse_above: float = Field(default=1.0, ge=0, le=1, description="risk above which sbatch refuses the job; 1: never")
    refuse_impossible: bool = Field(default=False, description="whether sbatch refuses a job that the cluster can never run")


class NotifySection(Section):
    """Who is notified of incidents."""

    public_url: str = Field(
        default="",
        description="where people reach the dashboard, such as https://petrel.example.org; empty: messages have no link",
    )
    heartbeat_url: str = Field(
        default="",
        description="address that is requested (GET) every minute while the loop turns; whoever misses it raises the alarm",
    )
    keep_days: int = Field(
        default=30, ge=15, description="messages that were delivered or given up are deleted so long after their incident is over"
    )
    routes: list[Route] = Field(default=[], description="the ways to people, each a table of its own: [[notify.routes]]")

    @field_validator("public_url", "heartbeat_url")
    @classmethod
    def _address(cls, url: str) -> str:
        if url:
            check_address(url)
        return url

    @field_validator("public_url")
    @classmethod
    def _no_query(cls, url: str) -> str:
        if "?" in url or "#" in url:
            raise ValueError("expected an address without ? and #, such as https://petrel.example.org")
        return url

    @field_validator("routes")
    @classmethod
    def _one_name_each(cls, routes: list[Route]) -> list[Route]:
        names = [route.name for route in routes]
        twice = next((name for name in names if names.count(name) > 1), "")
        if twice:
            raise ValueError(f"two routes are called '{twice}'; expected a name of its own for each")
        return routes


class EngineSection(Section):
    """Where heavy work of this site runs: evaluations, ensembles, the night."""

    place: str = Field(
        default="local", description="local, ray, ray://HOST:PORT, or auto: ray where there is one; --engine has precedence"
    )
    workers: int = Field(
        default=0, ge=0, le=4096, description="items at a time; 0: as the command has it here, every CPU of a Ray cluster"
    )

    @field_validator("place")
    @classmethod
    def _known_place(cls, place: str) -> str:
        if not is_place(place):
            raise ValueError(f"'{place}' is no place to work at; expected local, auto, ray or ray://HOST:PORT")
        return place


class Settings(Section):
    """Everything that can be set for a site."""

    site: SiteSection = SiteSection()
    store: StoreSection = StoreSection()
    jobs: JobsSection = JobsSection()
    energy: EnergySection = EnergySection()
    slurm: SlurmSection = SlurmSection()
    prometheus: PrometheusSection = PrometheusSection()
    traces: TracesSection = TracesSection()
    events: EventsSection = EventsSection()
    elastic: ElasticSection = ElasticSection()
    graphite: GraphiteSection = GraphiteSection()
    grafana: GrafanaSection = GrafanaSection()
    htcondor: HtcondorSection = HtcondorSection()
    watch: WatchSection = WatchSection()
    nightly: NightlySection = NightlySection()
    alarms: AlarmsSection = AlarmsSection()
    notify: NotifySection = NotifySection()
    mail: MailSection = MailSection()
    serve: ServeSection = ServeSection()
    submit: SubmitSection = SubmitSection()
    actions: ActionsSection = ActionsSection()
    engine: EngineSection = EngineSection()

    @property
    def allows_similar_names(self) -> bool:
        """Whether similar names and scripts may share their history: names often hold those of users."""
        return self.jobs.similar_names and not self.store.pseudonymise_users

    @model_validator(mode="after")
    def _mail_has_a_route(self) -> Self:
        mail_routes = {route.name for route in self.notify.routes if route.kind == EMAIL}
        for key, name in (("actions.mail_route", self.actions.mail_route), ("mail.route", self.mail.route)):
            if name and name not in mail_routes:
                raise ValueError(f"{key}: there is no route '{name}' of kind email; expected one of [[notify.routes]]")
        if self.mail.spool and not self.mail.route:
            raise ValueError("mail.route is empty; expected the name of a route of kind email, since mail.spool is set")
        return self


def load_settings(folder: Path) -> Settings:
    """Read and check the site.toml of a site folder."""
    path = folder / SITE_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(
            f"{folder} is not a site: there is no {SITE_FILE} in it.", hint=f"Run: stormpetrel init {folder}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.", hint="Check its permissions and encoding.") from error
    return parse_settings(text, where=str(path))


def parse_settings(text: str, *, where: str = SITE_FILE) -> Settings:
    """Settings out of the text of a site.toml."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{where} is not valid TOML: {error}.", hint="Correct that line.") from error
    return settings_from(values, where=where)


def settings_from(values: dict[str, object], *, where: str = SITE_FILE) -> Settings:
    """Settings out of plain values, checked; the first thing that is wrong is one sentence."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            f"{where}: {_first_problem(error)}", hint="Correct site.toml; docs/site-toml lists every key."
        ) from None


def settings_as_toml(settings: Settings) -> str:
    """A commented site.toml with every key, its meaning and its value."""
    lines = ["# Settings of a Stormpetrel site. Every key may be left out; what stands here is what is in force.", ""]
    for name, info in Settings.model_fields.items():
        section = getattr(settings, name)
        lines += [f"[{name}]  # {(info.annotation.__doc__ or '').strip()}" if info.annotation else f"[{name}]"]
        values = {key: getattr(section, key) for key in type(section).model_fields}
        lines += _key_lines(section, {key: value for key, value in values.items() if not _is_tables(section, key)})
        for key in [key for key in values if _is_tables(section, key)]:
            lines.append(f"# {type(section).model_fields[key].description}")
            for table in values[key]:
                lines += ["", f"[[{name}.{key}]]", *_key_lines(table, dict(table))]
        lines.append("")
    return "\n".join(lines)


def table_type(annotation: object) -> type[BaseModel] | None:
    """The model of a key that is a list of tables; None for every other key."""
    (inner, *_) = typing.get_args(annotation) or (None,)
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _is_tables(section: BaseModel, key: str) -> bool:
    return table_type(type(section).model_fields[key].annotation) is not None


def _key_lines(section: BaseModel, values: dict[str, object]) -> list[str]:
    fields = type(section).model_fields
    return [line for key, value in values.items() for line in (f"# {fields[key].description}", f"{key} = {_toml_value(value)}")]


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{where}'.{_did_you_mean(tuple(str(part) for part in problem['loc']))}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    value = "" if isinstance(problem["input"], dict) or where.startswith("notify.") else f" (found {problem['input']!r})"
    if not where:  # of several sections together
        return f"{message}."
    return f"'{where}': {message}{value}."  # an address to post to may be a secret


def _did_you_mean(location: tuple[str, ...]) -> str:
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
        else:
            model = table_type(annotation) or model
    close = difflib.get_close_matches(location[-1], list(model.model_fields), n=1)
    known = ", ".join(model.model_fields)
    return f" Did you mean '{close[0]}'?" if close else f" Known: {known}."
