"""HEAD and OPTIONS of every path, as Kafka Connect answers them.

Rules
1. HEAD is GET without the body, its headers and status included.
2. OPTIONS tells the methods of a path, in `Allow` and as text. A path that isn't there is 404, as for other methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from fastapi.responses import PlainTextResponse

__all__ = ["Application", "Message", "Methods", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class Methods:
    """Answers both methods in front of an application. `routes`: the list of its routes, which may still grow."""

    def __init__(self, app: Application, routes: Sequence[object]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope.get("method", "")
        if method == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, _without_body(send))
        elif method == "OPTIONS" and (allowed := self._allowed(scope["path"])):
            response = PlainTextResponse(", ".join(allowed), headers={"allow": ",".join(allowed)})
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allowed(self, path: str) -> list[str]:
        found: set[str] = set()
        for route in self._routes:
            pattern = getattr(route, "path_regex", None)
            if pattern is not None and pattern.match(path):
                found |= getattr(route, "methods", None) or set()
        if "GET" in found:
            found.add("HEAD")
        return sorted({*found, "OPTIONS"}) if found else []


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head
