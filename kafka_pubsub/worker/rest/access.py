"""Which requests a worker's REST interface takes, and where it may listen.

Rules
1. Without a token or a user everything is open, so it listens on this machine only, unless `--insecure` says otherwise.
2. A read-only token takes GET. `/livez` and `/readyz` need nothing: supervisors ask them. The page's files need nothing
   either: they hold no data, and ask for the token.
3. Tokens and passwords are compared in constant time.
4. A page of another origin writes nothing: a browser would send it what opens the interface, or needs to send nothing.
   Where no token is needed it may not read either: `Host` must have a name that no page's owner can point here.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from kafka_pubsub.errors import InvalidArgument

__all__ = ["READS", "Access", "check_listening", "is_foreign", "is_renamed"]

_OPEN = frozenset({"/livez", "/readyz", "/ui", "/ui/app.js", "/ui/app.css"})
READS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Access:
    """The keys of the interface: `token` for everything, `read_token` for reading, or `user` with `password`."""

    token: str = field(default="", repr=False)
    read_token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    #: Whether other machines may reach it though nothing is needed, by any name.
    insecure: bool = False

    @property
    def is_open(self) -> bool:
        """Whether everyone may do everything."""
        return not (self.token or self.user)

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> int:
        """Returns the status with which a request is refused; 0: it is taken."""
        if self.is_open or path in _OPEN:
            return 0
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.token and _same(given, self.token):
            return 0
        if kind.lower() == "basic" and self.user and self._is_user(given):
            return 0
        if kind.lower() == "bearer" and self.read_token and _same(given, self.read_token):
            return 0 if method in READS else 403
        return 401

    def _is_user(self, given: str) -> bool:
        try:
            text = base64.b64decode(given, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return False
        return _same(text, f"{self.user}:{self.password}")


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Returns whether a browser sends a request for a page of another origin. Other clients name no origin."""
    origin = headers.get("origin", "")
    return bool(origin) and origin.partition("://")[2] != headers.get("host", "")


def is_renamed(headers: Mapping[str, str]) -> bool:
    """Returns whether a request names this machine by a name that anyone could have given it in the DNS."""
    host = headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name in ("", "localhost"):
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False


def check_listening(host: str, access: Access, *, has_tls: bool) -> None:
    """Raises `InvalidArgument` if an interface that is open, or sends its token in the clear, would be public."""
    if access.insecure or _is_loopback(host):
        return
    missing = [
        *(["token, or user and password"] if access.is_open else []),
        *([] if has_tls else ["cert_file and key_file"]),
    ]
    if missing:
        raise InvalidArgument(
            f"http: {host} is reached by other machines, and [rest] has no {' and no '.join(missing)}: add them, "
            "listen on 127.0.0.1 behind a proxy, or give --insecure"
        )


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
