"""The official clients of Elasticsearch and OpenSearch -> one function that exchanges a request for an answer.

ElasticSection -> connect -> (exchange, close). The clients bring addresses, TLS and connections. What they would add on top is
left out on purpose: elasticsearch-py 9 writes `compatible-with=9` into every request, which servers 7 and 8 refuse, and turns
away whatever is not of its own maker. Requests go out as plain JSON, which every version takes as its own.
"""

from __future__ import annotations

import base64
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from stormpetrel.config import ElasticSection
from stormpetrel.errors import MissingExtraError, SettingsError
from stormpetrel.sources.server_connection import read_secret

Headers = Mapping[str, str]
Exchange = Callable[[str, str, "bytes | None"], "tuple[int, Headers, bytes]"]  # method, target, body -> status, headers, body
Connection = tuple[Exchange, Callable[[], None]]

OPENSEARCH: Final = "opensearch"
ELASTICSEARCH: Final = "elasticsearch"
MOST_BYTES: Final = 256 * 1024**2  # of one answer: 10,000 buckets take some 5 MB
_PIECE_BYTES: Final = 65_536


class TooLongError(OSError):
    """An answer without end."""


def connect(flavour: str, address: str, settings: ElasticSection) -> Connection:
    """A way to the server through the client that belongs to it, and how to close it."""
    headers = {"accept": "application/json", "content-type": "application/json", **_authorization(settings)}
    return (_opensearch if flavour == OPENSEARCH else _elasticsearch)(address, settings, headers)


def address_of(url: str) -> str:
    """The address with its port, as both clients want it."""
    if not url:
        raise SettingsError("Nothing says where Elasticsearch is.", hint="Set elastic.url to https://host:9200 in site.toml.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise SettingsError("elastic.url is no address.", hint="Write it as https://host:9200.")
    if parts.username or parts.password:
        raise SettingsError(
            "elastic.url holds a user or a password.", hint="Set elastic.user and elastic.password_file (mode 0600) instead."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}{parts.path.rstrip('/')}"


def _authorization(settings: ElasticSection) -> dict[str, str]:
    if settings.api_key_file and settings.user:
        raise SettingsError("elastic has both an API key and a user.", hint="Leave api_key_file or user empty.")
    if settings.api_key_file:
        key = read_secret(Path(settings.api_key_file), hint="Set elastic.api_key_file.")
        # Kibana shows a key encoded, or as ID:KEY.
        encoded = base64.b64encode(key.encode()).decode() if ":" in key else key
        return {"authorization": f"ApiKey {encoded}"}
    if settings.user:
        if not settings.password_file:
            raise SettingsError("elastic.user is set without a password.", hint="Set elastic.password_file (mode 0600).")
        password = read_secret(Path(settings.password_file), hint="Set elastic.password_file.")
        pair = f"{settings.user}:{password}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _elasticsearch(address: str, settings: ElasticSection, headers: dict[str, str]) -> Connection:
    try:
        from elasticsearch import Elasticsearch
    except ImportError:
        raise MissingExtraError("Reading Elasticsearch", "elastic") from None
    _quiet("elastic_transport")
    client = Elasticsearch(address, request_timeout=settings.timeout_s, max_retries=0, **_trust(address, settings))
    node: Any = client.transport.node_pool.get()  # the one that the address names
    _bound(node.pool, settings.timeout_s)

    def exchange(method: str, target: str, body: bytes | None) -> tuple[int, Headers, bytes]:
        meta, content = node.perform_request(method, target, body=body, headers=headers, request_timeout=settings.timeout_s)
        return meta.status, meta.headers, content

    return exchange, client.close


def _opensearch(address: str, settings: ElasticSection, headers: dict[str, str]) -> Connection:
    try:
        from opensearchpy import OpenSearch
    except ImportError:
        raise MissingExtraError("Reading OpenSearch", "elastic") from None
    _quiet("opensearch")
    client = OpenSearch(hosts=[address], timeout=settings.timeout_s, max_retries=0, **_trust(address, settings))
    connection = client.transport.get_connection()
    _bound(connection.pool, settings.timeout_s)

    def exchange(method: str, target: str, body: bytes | None) -> tuple[int, Headers, bytes]:
        status, found, text = connection.perform_request(method, target, body=body, ignore=range(300, 600), headers=headers)
        return status, {name.lower(): value for name, value in found.items()}, text.encode("utf-8", "surrogatepass")

    return exchange, client.close


def _trust(address: str, settings: ElasticSection) -> dict[str, Any]:
    """Whom to trust: the authority of the settings alone, or those that the system knows."""
    if not address.startswith("https:"):
        return {}
    try:
        system = ssl.create_default_context(cafile=settings.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"elastic.ca_file {settings.ca_file} cannot be read: {error}.", hint="It must be a PEM file of certificates."
        ) from None
    return {"ca_certs": settings.ca_file} if settings.ca_file else {"ssl_context": system}


def _quiet(logger: str) -> None:
    """The clients log what we tell as an error; without a handler Python would print it as well."""
    if not logging.getLogger(logger).handlers:
        logging.getLogger(logger).addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class _Read:
    """A response as the clients take it from urllib3, its body read."""

    status: int
    headers: Any
    data: bytes


def _bound(pool: Any, timeout_s: float) -> None:
    """Let no answer of a pool be longer, or take longer, than we can bear: the clients read whatever comes, drop by drop."""
    from urllib3 import HTTPHeaderDict
    from urllib3.exceptions import ReadTimeoutError

    plain = pool.urlopen

    def urlopen(method: str, url: str, *arguments: Any, **options: Any) -> _Read:
        give_up = time.monotonic() + timeout_s
        response = plain(method, url, *arguments, preload_content=False, **options)
        body = bytearray()
        try:
            while piece := response.read1(_PIECE_BYTES, decode_content=True):  # what is there now, not what will be
                body += piece
                if len(body) > MOST_BYTES:
                    raise TooLongError(f"answered with more than {MOST_BYTES // 1024**2} MiB")
                if time.monotonic() > give_up:
                    raise ReadTimeoutError(pool, url, "the whole answer took too long")
        except BaseException:
            response.close()
            raise
        response.release_conn()
        # Deprecations of a server are of no use to who reads events, and opensearch-py makes Python warnings of them.
        headers = HTTPHeaderDict((name, value) for name, value in response.headers.items() if name.lower() != "warning")
        return _Read(response.status, headers, bytes(body))

    pool.urlopen = urlopen
