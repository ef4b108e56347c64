"""The page about the API: every endpoint, nothing from elsewhere, whatever the document says is text."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser

import pytest

from stormpetrel.faces.api.docs_page import docs_html
from tests.faces.api.sample_site import ADMIN


class Page(HTMLParser):
    """The ids, the links and the addresses of a page, and whether every element that was opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        self.loaded += [found[name] for name in ("src", "href") if name in found and tag != "a"]
        assert not [name for name in found if name.startswith("on") or name == "style"]
        assert tag != "script"
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(world):
    answer = world.ask("GET", "/docs")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    return answer.text


def test_every_endpoint_is_on_the_page_with_its_scope(world, text):
    ids = Page(text).ids
    for methods in world.app.openapi()["paths"].values():
        for operation in methods.values():
            assert operation["operationId"] in ids
    assert {f"scope: {word}" for word in ("read", "predict", "write", "manage")} <= set(re.findall(r"scope: \w+", text))


def test_the_page_is_whole_and_its_links_lead_somewhere(text):
    page = Page(text)
    assert page.open == [] and len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)


def test_nothing_is_loaded_from_elsewhere(world, text):
    assert Page(text).loaded == ["docs.css"]
    style = world.ask("GET", "/docs.css")
    assert style.headers["content-type"].startswith("text/css") and "prefers-color-scheme: dark" in style.text
    assert "url(" not in style.text and "@import" not in style.text
    assert "default-src 'self'" in world.ask("GET", "/docs").headers["content-security-policy"]


def test_the_commands_on_the_page_do_what_they_say(world, text):
    """Those that only look: with a real job in place of the example."""
    tried = 0
    for command in re.findall(r"<pre><code>(.*?)</code></pre>", text, re.DOTALL):
        words = shlex.split(command.replace("&quot;", '"').replace("&#x27;", "'").replace("&amp;", "&"))
        assert words[0] == "curl"
        (address,) = [word for word in words if word.startswith("http://")]
        if "-X" in words or "{" in command:
            continue
        path = address.partition("/api/v1")[2]
        of_an_example = "jobs/" in path or "windows/" in path or path in ("/models/jobs-7", "/alarms/53", "/alarms/rehearsal")
        expected = 404 if of_an_example else 200
        assert world.ask("GET", path).status_code == expected, command
        tried += 1
    assert tried >= 12


def test_whatever_the_document_says_is_shown_as_text():
    evil = "<script>alert(1)</script>"
    operation = {"operationId": "x", "tags": ["jobs"], "summary": evil, "description": evil, "responses": {}}
    document = {
        "info": {"version": evil},
        "paths": {f"/api/v1/{evil}": {"get": operation}},
        "components": {"schemas": {"A": {"description": evil, "properties": {evil: {"enum": [evil], "default": evil}}}}},
    }
    assert "<script" not in docs_html(document)


def test_the_page_needs_the_scope_to_read(world):
    assert world.ask("GET", "/docs", scopes=("predict",)).status_code == 403
    assert world.ask("GET", "/docs", user=ADMIN, headers={"Authorization": "Bearer sp_wrong"}).status_code == 401
