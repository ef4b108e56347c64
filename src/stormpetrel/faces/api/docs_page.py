"""The documentation of the API as one page, made from its OpenAPI document; no script, nothing from elsewhere.

OpenAPI document -> docs_html -> HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from stormpetrel.faces.api.endpoint import PREFIX, SCOPE, Reader

Node = Mapping[str, Any]
_SECTIONS: Final = {
    "predict": ("Predictions", "Judge a job before it is submitted."),
    "jobs": ("Jobs", "Jobs of the site, what was predicted or scored of them, and why."),
    "actions": ("Actions", "What policies and people do to jobs and nodes: the switch, the ledger, every action."),
    "alarms": (
        "Alarms",
        "Incidents: what is wrong with the cluster, since when, the suspected cause, and what people did.",
    ),
    "nodes": ("Nodes and traces", "What the threads of the nodes do, and where that is unlike the training data of the model."),
    "grid": ("Cluster", "The cluster as a whole: how many events of each kind there are, and whether that is normal operation."),
    "site": ("Site", "The site as a whole: what the pages of the dashboard show."),
    "workload": ("Workload", "A generator of jobs like those of the site: how good it is, and new jobs out of it."),
    "models": ("Models", "List, promote and roll back models."),
    "own": ("Yours", "Opinions on advice, and saved views."),
}
_REF: Final = "#/components/schemas/"


def docs_router() -> APIRouter:
    """The page and its style sheet."""
    api = APIRouter(include_in_schema=False)

    @api.get("/docs")
    def docs(viewer: Reader, request: Request) -> Response:
        """The page."""
        del viewer
        return HTMLResponse(docs_html(request.app.openapi()))

    @api.get("/docs.css")
    def style(viewer: Reader) -> Response:
        """How it looks, light and dark."""
        del viewer
        return Response(files(__package__).joinpath("docs.css").read_text("utf-8"), media_type="text/css")

    return api


def docs_html(document: Node) -> str:
    """The whole page."""
    schemas: Node = document.get("components", {}).get("schemas", {})
    parts: dict[str, list[str]] = {tag: [] for tag in _SECTIONS}
    links: dict[str, list[str]] = {tag: [] for tag in _SECTIONS}
    for path, method, operation in _operations(document):
        for tag in operation.get("tags", []):
            if tag in parts:
                parts[tag].append(_endpoint(path, method, operation, schemas))
                links[tag].append(f'<li><a href="#{escape(operation["operationId"])}">{_label(path, method)}</a></li>')
    menu = "".join(f"<h2>{escape(_SECTIONS[tag][0])}</h2><ul>{''.join(links[tag])}</ul>" for tag in _SECTIONS if links[tag])
    body = "".join(_section(tag, parts[tag]) for tag in _SECTIONS if parts[tag])
    version = escape(str(document["info"]["version"]))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        '<title>Stormpetrel API</title><link rel="stylesheet" href="docs.css"></head><body>'
        '<a class="skip" href="#main">Skip to the endpoints</a>'
        f'<nav aria-label="Endpoints"><p class="brand">Stormpetrel <span>API v1 · {version}</span></p>{menu}'
        '<h2>Reference</h2><ul><li><a href="#schemas">Schemas</a></li><li><a href="openapi.json">openapi.json</a></li></ul></nav>'
        f'<main id="main"><h1>The API of Stormpetrel</h1>{_INTRODUCTION}{body}{_schemas(schemas)}</main></body></html>'
    )


_INTRODUCTION: Final = (
    "<p>Everything is JSON. A program shows who it is with a token, <code>Authorization: Bearer TOKEN</code>; an administrator "
    "makes one with <code>stormpetrel tokens add</code>. Each endpoint names the scope that the token needs. Where the site asks "
    "for no login, programs on the same machine need none either. Users see their own jobs, administrators all.</p>"
    '<p>Errors come as text: <code>{"error": {"what": …, "hint": …}}</code>. After a 429 or 503 try again when '
    "<code>Retry-After</code> seconds have passed. Times are UTC, sizes are bytes, spans are seconds.</p>"
)


def _operations(document: Node) -> Iterator[tuple[str, str, Node]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _section(tag: str, endpoints: list[str]) -> str:
    title, about = (escape(text) for text in _SECTIONS[tag])
    heading = f'<h2 id="part-{tag}">{title}</h2><p>{about}</p>'
    return f'<section aria-labelledby="part-{tag}">{heading}{"".join(endpoints)}</section>'


def _label(path: str, method: str) -> str:
    shown = escape(path.removeprefix(PREFIX))
    return f'<span class="method {escape(method)}">{escape(method.upper())}</span> <code>{shown}</code>'


def _endpoint(path: str, method: str, operation: Node, schemas: Node) -> str:
    name, scope = escape(operation["operationId"]), escape(str(operation.get(SCOPE, "")))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    parts = [
        f'<article id="{name}"><h3>{_label(path, method)}</h3>',
        f'<p class="summary">{escape(operation.get("summary", ""))} <span class="scope">scope: {scope}</span></p>',
        *(f"<p>{_with_code(text)}</p>" for text in operation.get("description", "").split("\n\n") if text),
        _parameters(operation.get("parameters", [])),
        f"<h4>Send</h4><p>{_type(body)}</p>" if body else "",
        f"<h4>Try it</h4><pre><code>{escape(_curl(path, method, operation, body, schemas))}</code></pre>",
        _responses(operation["responses"]),
        "</article>",
    ]
    return "".join(parts)


def _parameters(parameters: list[Node]) -> str:
    if not parameters:
        return ""
    rows = [
        (
            _code(parameter["name"]),
            _type(_without_null(parameter["schema"])),
            _meaning({**parameter["schema"], "description": parameter.get("description", "")}),
        )
        for parameter in parameters
    ]
    return f"<h4>Parameters</h4>{_table(('name', 'type', 'meaning'), rows)}"


def _without_null(schema: Node) -> Node:
    """What a parameter can be: a link cannot say null, it leaves the parameter out."""
    several = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    return several[0] if len(several) == 1 else schema


def _responses(responses: Node) -> str:
    rows = []
    for status, response in responses.items():
        schema = response.get("content", {}).get("application/json", {}).get("schema")
        rows.append((escape(status), _type(schema) if schema else "", _with_code(response["description"])))
    return f"<details><summary>Answers</summary>{_table(('status', 'body', 'meaning'), rows)}</details>"


def _schemas(schemas: Node) -> str:
    parts = []
    for name, schema in sorted(schemas.items()):
        rows = [(_code(field), _type(about), _meaning(about)) for field, about in schema.get("properties", {}).items()]
        text = f"<p>{_with_code(schema.get('description', ''))}</p>"
        shown = _table(("field", "type", "meaning"), rows) if rows else f"<p>{_type(schema)}</p>"
        parts.append(f'<article id="schema-{escape(name)}"><h3>{escape(name)}</h3>{text}{shown}</article>')
    return f'<section aria-labelledby="schemas"><h2 id="schemas">Schemas</h2>{"".join(parts)}</section>'


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table out of cells that are HTML already."""
    head = "".join(f'<th scope="col">{title}</th>' for title in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _with_code(text: str) -> str:
    """A text in which backticks mark code."""
    return "".join(_code(part) if place % 2 else escape(part) for place, part in enumerate(text.split("`")))


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _meaning(about: Node) -> str:
    default = about.get("default")
    shown = "" if default in (None, "", []) else f' <span class="default">default: {escape(json.dumps(default))}</span>'
    return _with_code(about.get("description", "")) + shown


def _type(schema: Node) -> str:
    """The type of a value in words, with links to schemas."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REF))
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema:
        values = schema["enum"]
        shown = " ".join(_code(str(value)) for value in values)
        return shown if len(values) <= _SUMMARY_WORDS else f"<details><summary>one of {len(values)}</summary>{shown}</details>"
    return escape(_plain_type(schema))


_SUMMARY_WORDS: Final = 12
_TYPE_NAMES: Final = {"string": "text", "integer": "whole number", "boolean": "true or false"}


def _plain_type(schema: Node) -> str:
    kind = str(schema.get("type", "anything"))
    if schema.get("format") in ("date-time", "date"):
        return {"date-time": "time", "date": "day"}[schema["format"]]
    ends = (
        schema.get("minimum", schema.get("exclusiveMinimum", schema.get("minLength"))),
        schema.get("maximum", schema.get("maxLength")),
    )
    bounds = [f"{side} {end:,}" for side, end in zip(("from", "to"), ends, strict=True) if end is not None]
    return f"{_TYPE_NAMES.get(kind, kind)} {' '.join(bounds)}".strip()


def _curl(path: str, method: str, operation: Node, body: Node | None, schemas: Node) -> str:
    """A command that can be pasted, with the examples of the schema filled in."""
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            path = path.replace(
                f"{{{parameter['name']}}}", str(_example(parameter["schema"] | {"examples": _examples(parameter)}, schemas))
            )
    wanted = [
        parameter for parameter in operation.get("parameters", []) if parameter["in"] == "query" and parameter.get("required")
    ]
    query = "&".join(
        f"{parameter['name']}={_example(parameter['schema'] | {'examples': _examples(parameter)}, schemas)}"
        for parameter in wanted
    )
    arguments = [
        "curl",
        "-s",
        *(["-X", method.upper()] if method not in ("get", "post") or (not body and method == "post") else []),
    ]
    arguments += ['-H "Authorization: Bearer $TOKEN"', f"'http://127.0.0.1:8050{path}{'?' + query if query else ''}'"]
    if body:
        arguments += [f"\\\n  --json '{json.dumps(_example(body, schemas), ensure_ascii=False).replace(chr(39), '’')}'"]
    return " ".join(arguments)


def _examples(parameter: Node) -> list[Any]:
    examples = parameter["schema"].get("examples") or parameter.get("examples") or []
    return list(examples.values()) if isinstance(examples, dict) else list(examples)


def _example(schema: Node, schemas: Node) -> Any:
    """A value that fits a schema: its example, else its default, else something small."""
    if schema.get("examples"):
        return schema["examples"][0]
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].removeprefix(_REF)], schemas)
    if schema.get("anyOf"):
        return _example(schema["anyOf"][0], schemas)
    if "properties" in schema:
        required = schema.get("required", ())
        shown = {name: about for name, about in schema["properties"].items() if about.get("examples") or name in required}
        return {name: _example(about, schemas) for name, about in shown.items()}
    if schema.get("type") == "array":
        return [_example(schema["items"], schemas)]
    if schema.get("enum"):
        return schema["enum"][0]
    return {"boolean": True, "integer": 1, "number": 1.0}.get(str(schema.get("type")), "…")
