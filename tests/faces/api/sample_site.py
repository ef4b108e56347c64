"""A served site for tests: jobs of several users, models, predictions of two days, and a token for whoever is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import polars as pl
import pytest
from fastapi import FastAPI

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import SCOPES
from stormpetrel.faces.api.routes import router
from stormpetrel.faces.web.app import bare_app, protected
from stormpetrel.lifecycle.live import open_stream
from stormpetrel.store.site import Site, open_site
from tests.builders import make_site
from tests.faces.web.sample_site import client_of
from tests.parts.made_once import made_once
from tests.parts.watched_site import TRAINED, copy_site, make_watched_site, watched_site_once

ADMIN = "the-admin"
OFTEN = 1_000_000  # requests per minute: these tests are about other things
WATCHED_FROM = TRAINED - timedelta(days=2)


SERVE = {"login": "token", "admins": [ADMIN], "requests_per_minute": OFTEN, "hosts": ["testserver"]}


def api_site_once(factory: pytest.TempPathFactory) -> Path:
    """The folder of the site of `make_api_site`, made once per run; to be copied."""
    watched = watched_site_once(factory)
    return made_once(
        factory, "api-site", lambda folder: _say(copy_site(watched, folder, serve=SERVE, actions={"cancel_by": "owners"}))
    )


def make_api_site(folder: Path) -> None:
    """A site that asks for tokens, with predictions of its last two days."""
    _say(make_watched_site(folder, serve=SERVE, actions={"cancel_by": "owners"}))


def _say(site: Site) -> None:
    with site:
        stream = open_stream(site, horizon=WATCHED_FROM, remember=False)
        site.predictions.begin(WATCHED_FROM)
        said = stream.advance(site.jobs.read_jobs().collect(), until=TRAINED)
        site.predictions.publish(said, horizon=TRAINED, clock=lambda: TRAINED)


@dataclass
class World:
    """A served site, and who lives there."""

    site: Site
    live: LiveSite
    app: FastAPI
    tokens: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)

    @property
    def jobs(self) -> pl.DataFrame:
        """Every job, as an administrator sees it."""
        return self.live.overview.frame

    def users(self) -> list[str]:
        """Who has jobs, those with the most first."""
        counts = (
            self.jobs.filter(pl.col("risk").is_not_null()).group_by("user").len().sort("len", "user", descending=[True, False])
        )
        return counts["user"].to_list()

    def token(self, user: str, scopes: tuple[str, ...] = SCOPES) -> str:
        """A token of a user with these scopes."""
        if (user, scopes) not in self.tokens:
            self.tokens[user, scopes] = self.site.tokens.add(f"{user} {token_hex(4)}", user=user, scopes=scopes)
        return self.tokens[user, scopes]

    def ask(
        self, method: str, path: str, *, user: str = ADMIN, scopes: tuple[str, ...] = SCOPES, **options: Any
    ) -> httpx.Response:
        """What a user with a token gets."""
        headers = {"Authorization": f"Bearer {self.token(user, scopes)}"} | options.pop("headers", {})
        return client_of(self.app).request(method, f"/api/v1{path}", headers=headers, **options)

    def get(self, path: str, *, user: str = ADMIN, **options: Any) -> Any:
        """The JSON that a user gets."""
        answer = self.ask("GET", path, user=user, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def small_world(folder: Path, **serve: Any) -> Iterator[World]:
    """Serve a site without jobs and models inside this process."""
    with make_site(folder, serve=SERVE | serve) as site:
        live = LiveSite(site)
        app = bare_app(live)
        app.include_router(router(live))
        yield World(site, live, protected(app, site))


def open_world(folder: Path) -> World:
    """Serve a site inside this process; its history is read once, and stays as it is."""
    site = open_site(folder)
    live = LiveSite(site)
    live.refresh()
    app = bare_app(live)
    app.include_router(router(live))
    return World(site, live, protected(app, site))
