"""A small server that speaks the documented API of Elasticsearch and OpenSearch over documents in memory, on loopback.

It is as strict as the real ones where that matters: media types of another version, fields of type text, pages out of order, an
index in the path of a point in time. It was written after the documentation; no real server stands behind it.
"""

from __future__ import annotations

import json
import re
import secrets
import ssl
import threading
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from stormpetrel.config import ElasticSection

TYPES = {"@timestamp": "date", "MyType": "text", "TriggerEventTypeName": "text", "host": "text", "Jobsub_Group": "text",
         "MachineAttrGLIDEIN_Site0": "text", "ReturnValue": "long", "event_id": "text", "pool": "text"}  # fmt: skip
VERSIONS = [("elasticsearch", "7.17.28"), ("elasticsearch", "8.19.4"), ("elasticsearch", "9.1.4"), ("opensearch", "2.19.3"),
            ("opensearch", "3.2.0")]  # fmt: skip
_SEARCH_KEYS = {
    "size",
    "query",
    "aggs",
    "track_total_hits",
    "timeout",
    "sort",
    "pit",
    "search_after",
    "_source",
    "docvalue_fields",
}


class Document(NamedTuple):
    index: str
    uid: str
    source: dict[str, Any]


class RefusedError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, kind: str, reason: str, **headers: str):
        super().__init__(reason)
        cause = {"type": kind, "reason": reason}
        self.status, self.headers = status, headers
        self.body = {"error": {"root_cause": [cause], **cause}, "status": status}


def millis(moment: str | datetime) -> int:
    """A time of a document as the server keeps it."""
    when = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


class ElasticServer:
    """Documents, and what goes wrong with them; `url` while it is served."""

    def __init__(self, flavour: str = "elasticsearch", version: str = "9.1.4", **types: str):
        self.flavour, self.version, self.url = flavour, version, ""
        self.types = {**TYPES, **types}
        self.documents: list[Document] = []
        self.indices: set[str] = set()
        self.requests: list[tuple[str, str, dict[str, Any], dict[str, str]]] = []  # method, path, body, headers
        self.faults: list[Any] = []  # the next answers: (status, body, headers), or None for an ordinary one
        self.broken: dict[str, str] = {}  # indices whose shards fail, and why
        self.points: dict[str, list[Document]] = {}
        self.authorization = ""  # what must be sent
        self.max_buckets = 65_536
        self.timed_out = False

    def put(self, index: str, documents: list[dict[str, Any]], *, uids: list[str] | None = None) -> None:
        """Index some documents."""
        self.indices.add(index)
        names = uids or [secrets.token_hex(8) for _ in documents]
        self.documents += [Document(index, uid, source) for uid, source in zip(names, documents, strict=True)]

    def remove(self) -> None:
        """Forget everything."""
        self.documents, self.indices = [], set()

    def settings(self, **more: Any) -> ElasticSection:
        """Settings that lead here."""
        return ElasticSection(**{"url": self.url, "index": "grid-*", "retries": 1, "timeout_s": 5, **more})

    # --- requests -------------------------------------------------------------------------------------------------------------

    def reply(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        parts = urlsplit(target)
        asked = json.loads(body) if body else {}
        self.requests.append((method, parts.path, asked, headers))
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            return fault
        try:
            self._check_headers(headers)
            parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
            return 200, self._answer(method, unquote(parts.path), parameters, asked), self._product()
        except RefusedError as refusal:
            return refusal.status, refusal.body, {**self._product(), **refusal.headers}

    def _product(self) -> dict[str, str]:
        known = self.flavour == "elasticsearch" and tuple(map(int, self.version.split("."))) >= (7, 14)
        return {"X-elastic-product": "Elasticsearch"} if known else {}

    def _check_headers(self, headers: dict[str, str]) -> None:
        major = self.version.split(".")[0]
        for name in ("Accept", "Content-Type"):
            other = re.search(r"compatible-with=(\d+)", headers.get(name, ""))
            if other and (self.flavour == "opensearch" or other[1] != major):
                raise RefusedError(400, "media_type_header_exception", f"Invalid media-type value on headers [{name}]")
        if self.authorization and headers.get("Authorization") != self.authorization:
            raise RefusedError(401, "security_exception", "missing authentication credentials for REST request")

    def _answer(self, method: str, path: str, parameters: dict[str, str], body: dict[str, Any]) -> Any:
        if path == "/":
            return self._root()
        head, _, verb = path.strip("/").partition("/")
        point = "_search/point_in_time" if self.flavour == "opensearch" else "_pit"
        if path.strip("/") == point and method == "DELETE":
            ids = body["pit_id"] if self.flavour == "opensearch" else [body["id"]]
            return {"succeeded": all(self.points.pop(one, None) is not None for one in ids), "num_freed": len(ids)}
        if path == "/_search":
            return self._search(self.points[body["pit"]["id"]], body)
        if head.startswith("_"):
            raise RefusedError(400, "illegal_argument_exception", f"no handler found for uri [{path}] and method [{method}]")
        indices = self._indices(head, parameters)
        if verb == "_search" and method == "POST":
            if "pit" in body:
                raise RefusedError(400, "action_request_validation_exception", "[indices] cannot be used with point in time")
            return self._search([one for one in self.documents if one.index in indices], body, indices)
        if verb == "_field_caps":
            return self._field_caps(indices, parameters["fields"].split(","))
        if verb == point and method == "POST" and "keep_alive" in parameters:
            name = secrets.token_hex(6)
            self.points[name] = [one for one in self.documents if one.index in indices]
            return {"pit_id" if self.flavour == "opensearch" else "id": name, "_shards": _shards(len(indices))}
        raise RefusedError(400, "illegal_argument_exception", f"no handler found for uri [{path}] and method [{method}]")

    def _root(self) -> dict[str, Any]:
        version: dict[str, Any] = {"number": self.version, "build_type": "tar", "lucene_version": "9.12.0"}
        if self.flavour == "opensearch":
            return {
                "cluster_name": "c",
                "version": {"distribution": "opensearch", **version},
                "tagline": "The OpenSearch Project",
            }
        return {"cluster_name": "c", "version": {"build_flavor": "default", **version}, "tagline": "You Know, for Search"}

    def _indices(self, pattern: str, parameters: dict[str, str]) -> list[str]:
        found: set[str] = set()
        for part in pattern.split(","):
            matching = {name for name in self.indices if fnmatchcase(name, part)}
            if not matching and "*" not in part and parameters.get("ignore_unavailable") != "true":
                raise RefusedError(404, "index_not_found_exception", f"no such index [{part}]")
            found |= matching
        return sorted(found)

    def _field_caps(self, indices: list[str], fields: list[str]) -> dict[str, Any]:
        caps = {}
        for field in fields:
            name = self._type(field)
            if name and indices:
                caps[field] = {name: {"type": name, "searchable": True, "aggregatable": name != "text"}}
        return {"indices": indices, "fields": caps}

    def _type(self, field: str) -> str:
        plain = field.removesuffix(".keyword")
        return self.types.get(plain, "") if plain == field else ("keyword" if self.types.get(plain) == "text" else "")

    # --- searches -------------------------------------------------------------------------------------------------------------

    def _search(self, documents: list[Document], body: dict[str, Any], indices: list[str] | None = None) -> dict[str, Any]:
        if unknown := set(body) - _SEARCH_KEYS:
            raise RefusedError(400, "parsing_exception", f"Unknown key for a START_OBJECT in {sorted(unknown)}.")
        matching = [one for one in documents if self._matches(one.source, body["query"])]
        shards = _shards(max(1, len(indices or ["all"])))
        touched = [name for name in self.broken if name in (indices or ()) and self._can_match(name, body["query"])]
        if touched:
            reason = {"type": "node_disconnected", "reason": self.broken[touched[0]]}
            shards |= {"failed": len(touched), "failures": [{"shard": 0, "index": touched[0], "reason": reason}]}
            matching = [one for one in matching if one.index not in touched]
        answer: dict[str, Any] = {"took": 1, "timed_out": self.timed_out, "_shards": shards}
        answer["hits"] = {"max_score": None, "hits": self._hits(matching, body) if body["size"] else []}
        if "pit" in body:
            answer["pit_id"] = body["pit"]["id"]
        if "aggs" in body:
            answer["aggregations"] = {name: self._aggregate(matching, one) for name, one in body["aggs"].items()}
        return answer

    def _can_match(self, index: str, query: dict[str, Any]) -> bool:
        """A shard without a document in the range is not asked."""
        return any(self._matches(one.source, query) for one in self.documents if one.index == index)

    def _values(self, source: dict[str, Any], field: str) -> list[Any]:
        value = source.get(field.removesuffix(".keyword"))
        return [] if value is None else value if isinstance(value, list) else [value]

    def _matches(self, source: dict[str, Any], query: dict[str, Any]) -> bool:
        ((kind, what),) = query.items()
        if kind == "bool":
            must = all(self._matches(source, one) for one in what.get("filter", []))
            return must and not any(self._matches(source, one) for one in what.get("must_not", []))
        if kind == "exists":
            return bool(self._values(source, what["field"]))
        if kind == "term":
            ((field, value),) = what.items()
            return any(str(one) == str(value) for one in self._values(source, field))
        if kind == "query_string":
            field, colon, value = what["query"].partition(":")
            if not colon or " " in what["query"]:
                raise RefusedError(400, "query_shard_exception", f"Failed to parse query [{what['query']}]")
            return str(source.get(field)) == value
        assert kind == "range", kind
        ((field, edges),) = what.items()
        assert edges["format"] == "epoch_millis"
        tests = {"gte": int.__ge__, "gt": int.__gt__, "lt": int.__lt__, "lte": int.__le__}
        given = {edge: limit for edge, limit in edges.items() if edge in tests}
        return any(all(tests[edge](one, limit) for edge, limit in given.items()) for one in self._values(source, field))

    def _hits(self, matching: list[Document], body: dict[str, Any]) -> list[dict[str, Any]]:
        ((field, how),), ((tie, _),) = (list(one.items()) for one in body["sort"])
        assert how["order"] == "asc" and tie == ("_id" if self.flavour == "opensearch" else "_shard_doc")
        ranks = {id(one): rank for rank, one in enumerate(matching)}
        keyed = [([one.source[field], one.uid if tie == "_id" else ranks[id(one)]], one) for one in matching]
        keyed.sort(key=lambda pair: pair[0])
        after = body.get("search_after")
        page = [pair for pair in keyed if after is None or pair[0] > after][: body["size"]]
        hits = []
        for key, one in page:
            hit = {"_index": one.index, "_id": one.uid, "_score": None, "sort": key}
            wanted = body.get("_source", True)
            if wanted is not False:
                hit["_source"] = (
                    one.source if wanted is True else {name: one.source[name] for name in wanted if name in one.source}
                )
            for name in body.get("docvalue_fields", []):
                self._aggregatable(name)
            told = {name: values for name in body.get("docvalue_fields", []) if (values := self._values(one.source, name))}
            hits.append({**hit, "fields": told} if told else hit)
        return hits

    def _aggregatable(self, field: str) -> None:
        if self._type(field) == "text":
            reason = f"Fielddata is disabled on [{field}] in [grid]. Text fields are not optimised for operations like this"
            raise RefusedError(400, "illegal_argument_exception", reason)

    def _aggregate(self, matching: list[Document], asked: dict[str, Any]) -> dict[str, Any]:
        (kind,) = set(asked) - {"aggs"}
        what = asked[kind]
        if kind == "composite":
            return self._composite(matching, what, asked.get("aggs", {}))
        if kind == "filter":
            inside = [one for one in matching if self._matches(one.source, what)]
            return {
                "doc_count": len(inside),
                **{name: self._aggregate(inside, one) for name, one in asked.get("aggs", {}).items()},
            }
        self._aggregatable(what["field"])
        values = [value for one in matching for value in self._values(one.source, what["field"])]
        if kind == "missing":
            return {"doc_count": sum(not self._values(one.source, what["field"]) for one in matching)}
        if kind == "cardinality":
            assert what["precision_threshold"] <= 40_000
            return {"value": len(set(values))}
        assert kind in ("min", "max")
        return {"value": float(min(values) if kind == "min" else max(values)) if values else None}

    def _composite(self, matching: list[Document], what: dict[str, Any], inside: dict[str, Any]) -> dict[str, Any]:
        if what["size"] > self.max_buckets:
            reason = f"Trying to create too many buckets. Must be less than or equal to: [{self.max_buckets}]"
            raise RefusedError(400, "too_many_buckets_exception", reason)
        names = [name for source in what["sources"] for name in source]
        groups: dict[tuple[Any, ...], list[Document]] = defaultdict(list)
        for one in matching:
            key = tuple(self._key(one.source, how) for source in what["sources"] for how in source.values())
            if Ellipsis not in key:
                groups[key].append(one)
        ordered = sorted(groups, key=_in_order)
        if "after" in what:
            assert list(what["after"]) == names, "after must name the sources"
            ordered = [key for key in ordered if _in_order(key) > _in_order(tuple(what["after"].values()))]
        buckets = []
        for key in ordered[: what["size"]]:
            told = {name: self._aggregate(groups[key], one) for name, one in inside.items()}
            buckets.append({"key": dict(zip(names, key, strict=True)), "doc_count": len(groups[key]), **told})
        return {**({"after_key": buckets[-1]["key"]} if buckets else {}), "buckets": buckets}

    def _key(self, source: dict[str, Any], how: dict[str, Any]) -> Any:
        """The value of one source of a composite; ... where the document has none and that is no bucket."""
        ((kind, what),) = how.items()
        self._aggregatable(what["field"])
        values = self._values(source, what["field"])
        if not values:
            return None if what.get("missing_bucket") else ...
        if kind == "terms":
            return values[0]
        assert what["fixed_interval"].endswith("m")
        step, ahead = int(what["fixed_interval"][:-1]) * 60_000, _offset_ms(what["time_zone"])
        return (values[0] + ahead) // step * step - ahead


def _in_order(key: tuple[Any, ...]) -> list[Any]:
    """Missing values come first."""
    return [(value is not None, value if value is not None else 0) for value in key]


def _offset_ms(zone: str) -> int:
    found = re.fullmatch(r"([+-])(\d\d):(\d\d)", zone)
    return 0 if zone == "UTC" else int(f"{found[1]}1") * (int(found[2]) * 60 + int(found[3])) * 60_000


def _shards(number: int) -> dict[str, Any]:
    return {"total": number, "successful": number, "skipped": 0, "failed": 0}


@contextmanager
def served(server: ElasticServer, *, tls: ssl.SSLContext | None = None):
    """Serve on a port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet, or each answer takes 40 ms

        def _reply(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, answer, more = server.reply(
                self.command, self.path, body, {name.title(): value for name, value in self.headers.items()}
            )
            answer = answer() if callable(answer) else answer
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            with suppress(ConnectionError):  # who asked has given up
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                self.wfile.flush()
                if int(more.get("Content-Length", len(content))) != len(content):
                    self.close_connection = True

        do_GET = do_POST = do_DELETE = do_PUT = _reply  # noqa: N815

        def handle(self):
            with suppress(ConnectionError):
                super().handle()

        def finish(self):
            with suppress(ConnectionError):
                super().finish()

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    if tls is not None:
        http.socket = tls.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class RealServer:
    """A real server, named by STORMPETREL_TEST_ES_URL, with indices of its own."""

    def __init__(self, url: str, folder):
        parts = urlsplit(url)
        self.prefix = f"stormpetrel-test-{secrets.token_hex(4)}-"
        self._auth = (parts.username, parts.password) if parts.username else None
        self.url = url.replace(f"{parts.username}:{parts.password}@", "") if self._auth else url
        self._secret: dict[str, str] = {}
        if self._auth:
            file = folder / "password"
            file.write_text(str(parts.password))
            file.chmod(0o600)
            self._secret = {"user": str(parts.username), "password_file": str(file)}

    def put(self, index: str, documents: list[dict[str, Any]], *, uids: list[str] | None = None) -> None:
        import httpx

        properties = {
            name: {"type": kind, **({"fields": {"keyword": {"type": "keyword"}}} if kind == "text" else {})}
            for name, kind in TYPES.items()
        }
        with httpx.Client(base_url=self.url, auth=self._auth) as client:
            client.put(f"/{self.prefix}{index}", json={"mappings": {"properties": properties}})
            lines = []
            for place, source in enumerate(documents):
                lines += [json.dumps({"index": {"_id": uids[place]} if uids else {}}), json.dumps(source)]
            sent = client.post(
                f"/{self.prefix}{index}/_bulk?refresh=true",
                content="\n".join(lines) + "\n",
                headers={"Content-Type": "application/x-ndjson"},
            )
            assert sent.status_code == 200 and not sent.json()["errors"], sent.text[:500]

    def settings(self, **more: Any) -> ElasticSection:
        index = ",".join(self.prefix + part for part in more.pop("index", "grid-*").split(","))
        return ElasticSection(**{"url": self.url, "index": index, **self._secret, **more})

    def remove(self) -> None:
        import httpx

        with httpx.Client(base_url=self.url, auth=self._auth) as client:
            for index in client.get(f"/_cat/indices/{self.prefix}*?format=json&h=index").json():
                client.delete(f"/{index['index']}")


def make_grid_documents(start: datetime, hours: int, *, per_hour: int = 6, copies: bool = False) -> list[dict[str, Any]]:
    """Documents of a small grid: submits, starts and ends, every third job failed; with `copies` the 028 of each beside it."""
    documents = []
    kinds = [("SubmitEvent", "ULOG_SUBMIT"), ("ExecuteEvent", "ULOG_EXECUTE"), ("JobTerminatedEvent", "ULOG_JOB_TERMINATED")]
    for hour in range(hours):
        for number in range(per_hour):
            mine, ulog = kinds[number % 3]
            moment = start + timedelta(hours=hour, seconds=number * 3600 // per_hour)
            document: dict[str, Any] = {"@timestamp": millis(moment), "MyType": mine, "host": f"schedd-{number % 2}"}
            if mine == "JobTerminatedEvent":
                document["ReturnValue"] = int(number % 2)
            documents.append(document)
            if copies:
                attributes = {
                    "TriggerEventTypeName": ulog,
                    "MachineAttrGLIDEIN_Site0": f"site-{hour % 2}",
                    "Jobsub_Group": "nova",
                }
                documents.append({**document, **attributes})
    return documents


def kinds_of(documents: list[dict[str, Any]]) -> Counter[str]:
    """How many documents of each kind there are."""
    return Counter(document["MyType"].removesuffix("Event") for document in documents)
