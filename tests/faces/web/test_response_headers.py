import base64
import hashlib

import pytest
from starlette.datastructures import MutableHeaders

from stormpetrel.faces.web.response_headers import content_security_policy, inline_script_hashes, protect


def kept_for(path, query=b"", **before):
    headers = MutableHeaders(before)
    protect(headers, policy="", path=path, query=query, is_https=False)
    return headers["Cache-Control"]


def test_only_files_that_are_the_same_for_everybody_are_kept_by_browsers():
    assert kept_for("/jobs") == kept_for("/api/v1/jobs") == kept_for("/_dash-layout") == "no-store"
    assert kept_for("/api/v1/jobs", **{"cache-control": "public, max-age=9"}) == "no-store"
    assert "immutable" in kept_for("/assets/site.css", b"m=1718000000.0")
    assert kept_for("/assets/site.css") == "no-cache"
    fingerprinted = {"cache-control": "public, max-age=31536000"}
    assert kept_for("/_dash-component-suites/dash/deps/react.v18m1.js", **fingerprinted) == "public, max-age=31536000"
    assert kept_for("/_dash-component-suites/dash/deps/react.js") == "no-cache"


def test_an_inline_script_is_allowed_by_its_hash_alone():
    page = '<script>start();</script><script src="/a.js"></script><script type="application/json">{"a": 1}</script>'
    (only,) = inline_script_hashes(page)
    assert only == f"'sha256-{base64.b64encode(hashlib.sha256(b'start();').digest()).decode()}'"
    policy = content_security_policy([only])
    assert f"script-src 'self' {only};" in policy
    assert "unsafe-eval" not in policy and "unsafe-inline" not in policy.split("style-src")[0]


@pytest.mark.parametrize("name", ["Server", "X-Powered-By"])
def test_nothing_says_what_the_server_is_made_of(name):
    headers = MutableHeaders({name: "uvicorn"})
    protect(headers, policy="", path="/", query=b"", is_https=False)
    assert name not in headers
