"""Kafka's jars: fetched, cached, and checked against the lock.

Theory: `kafka.lock.json` names every jar by coordinate and SHA-256. jgo fetches each by its coordinate into a
scratch directory; a jar enters the cache only after its hash fits, by an atomic rename. So the cache never
holds half a download, and a jar with a wrong hash was changed later by another program: that is an error, never
repaired in silence.
Rules: the network is used only for jars that aren't in the cache. Every start verifies every jar; a jar whose
size and time of change are those of the last good verification isn't hashed again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import ssl
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from kafka_pubsub.local.errors import RESOURCE_EXHAUSTED, UNAVAILABLE, LocalKafkaError, PartsMissing
from kafka_pubsub.local.file_lock import exclusive
from kafka_pubsub.local.repositories import remote_repositories

__all__ = ["Lock", "LockedJar", "ensure_jars", "load_lock", "verify"]

INSTALL_HINT = "pip install 'kafka-pubsub-orderly[local]'"
# 30 s: a jar of 10 MB through a slow proxy may wait that long for its first byte.
HTTP_TIMEOUT_S = 30
PARALLEL_DOWNLOADS = 8
# All jars are 45 MB; the scratch copy is renamed, not copied.
DOWNLOAD_BYTES = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One artifact: its Maven coordinate and the SHA-256 that its file must have."""

    group: str
    artifact: str
    version: str
    sha256: str
    #: Of artifacts beside a project's jar, such as an archive of all its parts.
    classifier: str = ""
    packaging: str = "jar"

    @property
    def filename(self) -> str:
        """The file's name in the cache."""
        classifier = self.classifier and f"-{self.classifier}"
        return f"{self.artifact}-{self.version}{classifier}.{self.packaging}"


@dataclass(frozen=True, slots=True)
class Lock:
    """The Kafka version and all jars it runs on."""

    kafka: str
    jars: tuple[LockedJar, ...]


def load_lock() -> Lock:
    """Reads the lock that this package contains."""
    return parse_lock(resources.files("kafka_pubsub.local").joinpath("kafka.lock.json").read_text("utf-8"))


def parse_lock(text: str) -> Lock:
    """Returns the lock that a JSON text describes."""
    data = json.loads(text)
    return Lock(data["kafka"], tuple(_locked(**row) for row in data["jars"]))


def _locked(coordinate: str, sha256: str) -> LockedJar:
    group, artifact, version = coordinate.split(":")
    return LockedJar(group, artifact, version, sha256)


def ensure_jars(cache: Path, on_progress: Callable[[str], None], lock: Lock | None = None) -> list[Path]:
    """Returns the verified jars, after fetching those that are missing (the only use of the network)."""
    lock = lock or load_lock()
    folder = cache / f"kafka-{lock.kafka}"
    try:
        if _missing(lock, folder):
            folder.mkdir(parents=True, exist_ok=True)
            # Two processes that start at once on a fresh machine: the second waits and finds everything there.
            with exclusive(cache / "fetch.lock"):
                _fetch(_missing(lock, folder), folder, on_progress)
        verify(lock, folder)
    except OSError as error:
        raise LocalKafkaError(
            f"Can't keep Kafka's jars in {folder} ({error.strerror or error}). Make it readable and writable, or "
            "set KAFKA_PUBSUB_CACHE to a directory that is."
        ) from error
    return [folder / jar.filename for jar in lock.jars]


def _missing(lock: Lock, folder: Path) -> list[LockedJar]:
    return [jar for jar in lock.jars if not (folder / jar.filename).exists()]


def verify(lock: Lock, folder: Path) -> None:
    """Checks each jar against the lock; raises on the first that differs."""
    known = _load_verified(folder)
    seen: dict[str, list[object]] = {}
    for jar in lock.jars:
        path = folder / jar.filename
        stat = path.stat()
        mark: list[object] = [stat.st_size, stat.st_mtime_ns, jar.sha256]
        if known.get(jar.filename) != mark and sha256_of(path) != jar.sha256:
            raise LocalKafkaError(
                f"{path} isn't the file that was locked for Kafka {lock.kafka} (SHA-256 differs): it was damaged or "
                "changed after the download. Delete it and start again; it will be fetched anew."
            )
        seen[jar.filename] = mark
    if seen != known:
        _write_json(folder / "verified.json", seen)


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load_verified(folder: Path) -> dict[str, list[object]]:
    try:
        data = json.loads((folder / "verified.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write_json(path: Path, data: object) -> None:
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(json.dumps(data), "utf-8")
        scratch.replace(path)
    except OSError:
        # A cache that is read-only (an image) costs a hash per start, nothing else.
        scratch.unlink(missing_ok=True)


def _fetch(jars: list[LockedJar], folder: Path, on_progress: Callable[[str], None]) -> None:
    if not jars:
        return
    if shutil.disk_usage(folder).free < DOWNLOAD_BYTES:
        raise LocalKafkaError(
            f"Kafka's jars need {DOWNLOAD_BYTES >> 20} MB in {folder}, and less is free there. Free some space or "
            "set KAFKA_PUBSUB_CACHE to a directory on another disk.",
            code=RESOURCE_EXHAUSTED,
        )
    on_progress(f"Fetching Kafka ({len(jars)} jars, once)")
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as name:
        scratch = Path(name)
        download = _downloader(scratch)
        with _trusting_the_machines_ca(scratch), ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            for done, (jar, path) in enumerate(zip(jars, pool.map(download, jars), strict=True), 1):
                _admit(jar, path, folder)
                if done % 10 == 0 or done == len(jars):
                    on_progress(f"Fetched {done} of {len(jars)} jars")


def _admit(jar: LockedJar, path: Path, folder: Path) -> None:
    if sha256_of(path) != jar.sha256:
        raise LocalKafkaError(
            f"The repository delivered another {jar.group}:{jar.artifact}:{jar.version} than the locked one "
            "(SHA-256 differs). Start again; if it stays so, ask the operator of the mirror that this machine uses."
        )
    path.replace(folder / jar.filename)


def _downloader(scratch: Path) -> Callable[[LockedJar], Path]:
    try:
        from jgo.maven import MavenContext
    except ImportError:
        raise PartsMissing(f"jgo, which fetches Kafka, isn't installed: {INSTALL_HINT}") from None
    context = MavenContext(repo_cache=scratch, remote_repos=remote_repositories(), timeout=HTTP_TIMEOUT_S)

    def download(jar: LockedJar) -> Path:
        try:
            component = context.project(jar.group, jar.artifact).at_version(jar.version)
            path: Path = component.artifact(classifier=jar.classifier, packaging=jar.packaging).resolve()
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES):
                raise
            raise PartsMissing(_network_hint(jar, error), code=UNAVAILABLE) from error
        return path

    return download


def _network_hint(jar: LockedJar, error: Exception) -> str:
    return (
        f"Couldn't fetch {jar.group}:{jar.artifact}:{jar.version}, which the embedded Kafka needs once "
        f"({type(error).__name__}: {error}). Check the network; behind a proxy set HTTPS_PROXY, behind a mirror put "
        "it into ~/.m2/settings.xml or set KAFKA_PUBSUB_MAVEN_REPOSITORY to its address, for a CA of your own set "
        "SSL_CERT_FILE; or set KAFKA_HOME to an unpacked Kafka 4.x, or use an existing cluster."
    )


@contextmanager
def _trusting_the_machines_ca(scratch: Path) -> Iterator[None]:
    """Lets `requests`, which jgo uses, trust the CAs that Python trusts, such as that of a company's proxy.

    By default `requests` trusts its own list of CAs, and ignores SSL_CERT_FILE.
    """
    machines = ssl.get_default_verify_paths().cafile
    if not machines or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE"):
        yield
        return
    os.environ["REQUESTS_CA_BUNDLE"] = str(_trusted(Path(machines), scratch))
    try:
        yield
    finally:
        del os.environ["REQUESTS_CA_BUNDLE"]


def _trusted(machines: Path, scratch: Path) -> Path:
    if os.environ.get("SSL_CERT_FILE"):
        return machines
    try:
        import certifi
    except ImportError:
        raise PartsMissing(f"certifi, which fetching Kafka needs, isn't installed: {INSTALL_HINT}") from None
    # Both lists: an image's own may be old, or nearly empty.
    both = scratch / "trusted.pem"
    both.write_bytes(Path(certifi.where()).read_bytes() + b"\n" + machines.read_bytes())
    return both
