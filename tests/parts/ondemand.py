"""A stand-in of Open OnDemand's proxy: the app in a process of its own, as another user, below /pun/sys/stormpetrel.

Run with `python -I -S` and the folder of the installed app: nothing but Python's standard library can be imported. Beside the app
there is a dashboard with the widget in it, under the policy that Open OnDemand's own dashboard sends.
"""

import os
import re
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

APP, DASHBOARD = "/pun/sys/stormpetrel", "/pun/sys/dashboard"
NONCE = "um92Kvq+YpwJX9z74sfSMA=="
POLICY = (
    "default-src 'self'; font-src 'self' data:; img-src 'self' data:; object-src 'none'; connect-src 'self'; "
    f"script-src 'self' 'nonce-{NONCE}'; style-src 'self' 'nonce-{NONCE}'"
)


class Quiet(WSGIRequestHandler):
    """Keeps no log."""

    def log_message(self, *_: object) -> None:
        pass


class Threads(ThreadingMixIn, WSGIServer):
    """A browser opens more connections than it uses."""

    daemon_threads = True


def dashboard(widget: str, start_response):
    shown = re.sub(r"<%#.*?%>", "", widget).replace("<%= content_security_policy_nonce %>", NONCE)
    assert "<%" not in shown
    start_response("200 OK", [("Content-Type", "text/html; charset=utf-8"), ("Content-Security-Policy", POLICY)])
    return [
        f'<!doctype html><html lang=en><title>Dashboard</title><link rel=icon href="data:,"><body>{shown}</body></html>'.encode()
    ]


def main(folder: str, uid: int, port: int) -> None:
    widget = (Path(folder) / "dashboard" / "_stormpetrel.html.erb").read_text(encoding="utf-8")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(uid)
    os.chdir(folder)
    sys.path.insert(0, folder)
    from passenger_wsgi import application

    def proxy(environment, start_response):
        path = environment["PATH_INFO"]
        if path == DASHBOARD:
            return dashboard(widget, start_response)
        if not path.startswith(APP):
            start_response("404 Not Found", [])
            return []
        below = {
            "SCRIPT_NAME": APP,
            "PATH_INFO": path[len(APP) :],
            "REMOTE_USER": "somebody-else",
            "HTTP_X_FORWARDED_USER": "root",
        }
        return application({**environment, **below}, start_response)

    server = make_server("127.0.0.1", port, proxy, Threads, Quiet)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
