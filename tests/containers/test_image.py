"""Our image as docs/compose.md promises it: small, without root or writable files, healthy, ended by SIGTERM."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from docker.models.containers import Container
from packaging.utils import canonicalize_name

from tests.containers.cluster import ContainerCluster
from tests.containers.engine import LABELS, Engine, OwnNetwork
from tests.support import until
from tests.unit.house.repository import ROOT, project

#: MB.
MOST_ABOVE_THE_BASE: Final = 200
#: Seconds until a worker is ready, on a machine that others use too. The aim is 5, and the figure is printed.
SOON: Final = 30.0
HEALTH: Final = ["/app/bin/python3", "-I", "/app/health.py"]
SHOP = """
from kafka_pubsub import App
app = App()
@app.subscriber("billing", topic="orders")
def charge(data: bytes) -> None: ...
"""


class Containers:
    """Starts containers of our image as a careful operator does, and removes them."""

    def __init__(self, image: str, network: OwnNetwork, stack: ExitStack) -> None:
        self._image, self._network, self._stack = image, network, stack

    def start(
        self, *command: str, folder: Path | None = None, kafka: str = "nowhere:9092", **options: Any
    ) -> Container:
        """Starts one; `folder` is mounted at /srv."""
        made = (
            self._network.container(
                self._image, read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"], **options
            )
            .with_command(list(command))
            .with_envs(KAFKA_PUBSUB_BOOTSTRAP=kafka)
        )
        if folder is not None:
            made = made.with_volume_mapping(folder, "/srv", "ro")
        return self._stack.enter_context(made).get_wrapped_container()


@pytest.fixture
def containers(image: str, network: OwnNetwork) -> Iterator[Containers]:
    with ExitStack() as stack:
        yield Containers(image, network, stack)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A worker's directory, which the image's user can read."""
    tmp_path.chmod(0o755)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "worker.toml").write_text('[apps]\nshop = "shop:app"\n')
    return tmp_path


def test_the_image_for_audits_is_built_as_the_page_on_kubernetes_has_it(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    (text,) = re.findall(r"^```dockerfile\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    # Java comes from an image that may not be reached; Spark and Arrow are large, and come like the others.
    text, left_out = re.subn(
        r"^COPY --from=eclipse-temurin.*\n|'py(?:spark|arrow)\S*' ", "", text, flags=re.MULTILINE
    )
    assert left_out == 3
    (tmp_path / "Dockerfile").write_text(text.replace("FROM kafka-pubsub", f"FROM {image}"))
    made = engine.build("kafka-pubsub-spark", tmp_path)
    look = ["-c", "import jinja2, os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir, os.environ['JAVA_HOME'])"]
    told = engine.client.containers.run(made, look, entrypoint="/app/bin/python3", remove=True, labels=LABELS)
    assert told == b"/tmp /opt/java\n"


def said(container: Container) -> str:
    return str(container.logs().decode())


def code_of(container: Container) -> int:
    return int(container.wait(timeout=60)["StatusCode"])


def is_healthy(container: Container) -> bool:
    return int(container.exec_run(HEALTH).exit_code) == 0


def test_the_image_is_small_and_says_what_it_is(
    engine: Engine, image: str, figure: Callable[[str], None]
) -> None:
    ours, base = engine.client.images.get(image).attrs, engine.client.images.get(engine.base).attrs
    above = (ours["Size"] - base["Size"]) / 1e6
    figure(f"{above:.0f} MB above its base")
    assert above < MOST_ABOVE_THE_BASE
    assert ours["Config"]["User"] == "10001:10001"
    labels = ours["Config"]["Labels"]
    names = {name.rpartition(".")[2] for name in labels if name.startswith("org.opencontainers.image.")}
    assert names >= {"title", "description", "licenses", "version", "revision"}


def test_the_image_has_what_its_lock_names_and_no_more(containers: Containers) -> None:
    look = "import json; print(json.dumps(json.load(open('/app/sbom.cdx.json'))))"
    listed = containers.start("-c", look, entrypoint="/app/bin/python3")
    assert code_of(listed) == 0
    bill = json.loads(said(listed))
    assert bill["bomFormat"] == "CycloneDX"
    found = {canonicalize_name(each["name"]): each["version"] for each in bill["components"]}
    own = project()["project"]
    assert found.pop(own["name"]) == own["version"]
    lock = (ROOT / "deploy" / "images" / "requirements.lock").read_text("utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))
    assert found.items() <= {canonicalize_name(name): version for name, version in locked.items()}.items()
    assert {"confluent-kafka", "fastapi", "aiohttp", "prometheus-client", "opentelemetry-api"} <= set(found)


def test_any_command_runs_and_a_wrong_one_is_told(containers: Containers) -> None:
    version = containers.start("--version")
    assert (code_of(version), said(version)) == (0, f"kafka-pubsub {project()['project']['version']}\n")
    wrong = containers.start("wrker")
    assert code_of(wrong) == 2
    assert "No such command 'wrker'" in said(wrong)


def test_a_secret_that_cant_be_read_is_named_with_what_to_do(containers: Containers, folder: Path) -> None:
    (folder / "token").write_text("secret")
    (folder / "token").chmod(0o600)
    (folder / "worker.toml").write_text('[services]\nrouter = true\n[rest]\ntoken = "${file:/srv/token}"\n')
    command = ("worker", "--config", "worker.toml", "--http", "0.0.0.0:8080", "--insecure")
    worker = containers.start(*command, folder=folder)
    assert code_of(worker) == 2
    assert "token: the file /srv/token can't be read: Permission denied" in said(worker)
    assert "let the worker's user read it" in said(worker)


def test_a_worker_is_ready_soon_healthy_and_ended_by_sigterm(
    containers: Containers, brokers: ContainerCluster, folder: Path, figure: Callable[[str], None]
) -> None:
    command = ("worker", "--config", "worker.toml", "--http", "8080")
    times = []
    for _ in range(3):
        began = time.monotonic()
        worker = containers.start(*command, folder=folder, kafka=brokers.bootstrap)
        until(partial(is_healthy, worker), "the worker is ready", SOON)
        times.append(time.monotonic() - began)
        worker.stop(timeout=60)
        assert code_of(worker) == 143, said(worker)
        assert "The worker has stopped." in said(worker)
    figure(f"ready after {sorted(times)[1]:.1f} s, the median of {[round(each, 1) for each in times]}")


def test_a_worker_without_its_broker_isnt_healthy(containers: Containers, folder: Path) -> None:
    command = ("worker", "--config", "worker.toml", "--http", "8080")
    worker = containers.start(*command, folder=folder)
    until(lambda: b'"ok":false' in worker.exec_run(HEALTH).output, "it answers", SOON)
    assert not is_healthy(worker)


def test_what_has_no_address_is_healthy_while_it_runs(containers: Containers, folder: Path) -> None:
    worker = containers.start("worker", "--config", "worker.toml", folder=folder)
    until(partial(is_healthy, worker), "it runs", SOON)
