"""One HTTP request over the network, with certificates verified: the same exchange as over a Unix socket, with http.client."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from stormpetrel_client.unix_http import ExchangeError, NoAnswerInTimeError

_LARGEST = 64 * 1024 * 1024


def exchange(
    service: str, method: str, target: str, *, headers: Mapping[str, str], body: bytes | None, limit_s: float, ca_file: str = ""
) -> tuple[int, bytes]:
    """Send one request to `https://host[:port]`; status and body of the answer, ExchangeError where none comes in time."""
    address = urlsplit(service)
    connection: http.client.HTTPConnection
    try:
        if address.scheme == "http":
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=limit_s)
        else:
            context = ssl.create_default_context(cafile=str(Path(ca_file).expanduser()) if ca_file else None)
            connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=limit_s, context=context)
    except (OSError, ValueError) as error:
        raise ExchangeError(str(error) or type(error).__name__) from error
    try:
        connection.request(method, target, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(_LARGEST)
    except socket.timeout as error:  # another name of TimeoutError from Python 3.10 on
        raise NoAnswerInTimeError(f"no answer within {limit_s:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise ExchangeError(getattr(error, "strerror", None) or str(error) or type(error).__name__) from error
    finally:
        connection.close()
