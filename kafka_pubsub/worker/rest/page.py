"""Serves the operator's page: `/ui`, its script and its style.

Rules
1. The three files hold no data, so they need no token; the page asks for its data with the token.
2. A browser runs nothing here but this script: no text of a message or a name can become code.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

from fastapi import FastAPI, Response

__all__ = ["POLICY", "add_page"]

#: The rights of the page in a browser: load its own script and style, and ask its own worker.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_FILES = {
    "/ui": ("ui.html", "text/html"),
    "/ui/app.js": ("ui.js", "text/javascript"),
    "/ui/app.css": ("ui.css", "text/css"),
}


def add_page(app: FastAPI) -> None:
    """Gives an app the routes."""
    for path, (name, kind) in _FILES.items():
        app.add_api_route(path, _serve(name, kind), include_in_schema=False)


def _serve(name: str, kind: str) -> Callable[[], Response]:
    content = files("kafka_pubsub.worker.rest").joinpath(name).read_bytes()

    def serve() -> Response:
        return Response(content, media_type=kind, headers=_HEADERS)

    return serve
