"""Where Maven artifacts come from on this machine: its own settings first, Maven Central else.

In this order: `KAFKA_PUBSUB_MAVEN_REPOSITORY`; a mirror of Central in Maven's settings.xml; the repositories
of jgo's own settings followed by Central. Whatever delivers, the lock's hashes decide what is accepted.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

__all__ = ["mirror_of_central", "remote_repositories"]

# What may stand in <mirrorOf> and covers Central.
COVERS_CENTRAL = frozenset({"*", "central", "external:*"})


def remote_repositories() -> dict[str, str]:
    """Returns the addresses of the repositories by name, in the order in which they are asked."""
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    if given := os.environ.get("KAFKA_PUBSUB_MAVEN_REPOSITORY"):
        return {"told": given.rstrip("/")}
    settings = (Path.home() / ".m2" / "settings.xml", Path("/etc/maven/settings.xml"))
    for path in settings:
        if mirror := mirror_of_central(path):
            return {"mirror": mirror.rstrip("/")}
    own: dict[str, str] = GlobalSettings.load().repositories
    return {**{name: url.rstrip("/") for name, url in own.items()}, "central": str(MAVEN_CENTRAL_URL)}


def mirror_of_central(settings: Path) -> str | None:
    """Returns the address of the mirror of Central in a Maven settings.xml, if there is one."""
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        names = {name.strip() for name in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        blocked = (mirror.findtext("{*}blocked") or "").strip() == "true"
        address = (mirror.findtext("{*}url") or "").strip()
        if address and not blocked and names & COVERS_CENTRAL and "!central" not in names:
            return address
    return None
