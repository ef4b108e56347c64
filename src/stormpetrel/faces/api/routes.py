"""The API of a site, under /api/v1.

LiveSite -> router -> APIRouter, which `faces/web/app.py` puts into the web application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from stormpetrel.faces.api.alarm_routes import action_router, alarm_router
from stormpetrel.faces.api.docs_page import docs_router
from stormpetrel.faces.api.endpoint import PREFIX, SCOPE, scope_of
from stormpetrel.faces.api.job_routes import job_router, predict_router
from stormpetrel.faces.api.model_routes import model_router, workload_router
from stormpetrel.faces.api.own_routes import own_router
from stormpetrel.faces.api.site_routes import capacity_router, cluster_router, node_router, site_router
from stormpetrel.learn.threads import wait_politely

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

_PARTS: Final = (
    predict_router, job_router, alarm_router, action_router, site_router, node_router, cluster_router, capacity_router,
    workload_router, model_router, own_router,
)  # fmt: skip


def router(live: LiveSite) -> APIRouter:
    """Every endpoint of the API; who is asking is known when one of them is reached."""
    _load_trees()
    api = APIRouter(prefix=PREFIX, dependencies=_shown_security(live))
    for part in _PARTS:
        endpoints = part(live)
        for route in endpoints.routes:
            if isinstance(route, APIRoute):
                route.openapi_extra = {SCOPE: scope_of(route)}
        api.include_router(endpoints)
    api.include_router(docs_router())
    return api


def _load_trees() -> None:
    """Load XGBoost before anybody asks, and pandas with it: Plotly fails where another thread has half of pandas imported."""
    wait_politely()
    import xgboost  # noqa: F401


def _shown_security(live: LiveSite) -> list[Any]:
    """The tokens section of the OpenAPI document, where a token is needed; `Security` does the check."""
    if live.settings.serve.login != "token":
        return []
    bearer = HTTPBearer(scheme_name="token", description="A token: stormpetrel tokens add NAME", auto_error=False)
    return [Depends(bearer)]
