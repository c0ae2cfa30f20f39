"""docs/kubernetes.md: its commands name what is there, its overlays build, its image has the extra `spark`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes_validate", reason="needs the extra dev: pip install -e '.[dev]'")

import yaml  # behind the skip
from packaging.requirements import Requirement

from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import FOLDER, Resource, built, keys_of_secret, needed_secrets, of_kind
from tests.unit.house.repository import ROOT, project

PAGE = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
#: Of Strimzi's example, and of the overlays' own namespaces.
STRIMZI = "kafka"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def block_with(language: str, words: str) -> str:
    (found,) = [text for text in blocks(language) if words in text]
    return found


def commands() -> list[tuple[str, list[str]]]:
    """Each command of kubectl with the overlay that its block applies."""
    found = []
    for block in blocks("sh"):
        for overlay in re.findall(r"apply -k deploy/kubernetes/(\S+)", block):
            found += [
                (overlay, shlex.split(line)) for line in block.splitlines() if line.startswith("kubectl")
            ]
    return found


@pytest.mark.parametrize(("overlay", "words"), commands(), ids=lambda each: " ".join(each)[:60])
def test_a_command_names_what_its_overlay_has(overlay: str, words: list[str]) -> None:
    resources = built(overlay)
    if "-n" in words:
        assert (
            words[words.index("-n") + 1]
            == of_kind(resources, "Deployment")["worker"]["metadata"]["namespace"]
        )
    for word in words:
        if word.startswith("--from=cronjob/"):
            assert word.removeprefix("--from=cronjob/") in of_kind(resources, "CronJob")
        if word.startswith("deployment/"):
            assert word.removeprefix("deployment/") in of_kind(resources, "Deployment")
    files = {word.removeprefix("--from-file=") for word in words if word.startswith("--from-file=")}
    assert files in (set(), set(keys_of_secret("worker")))


def test_the_files_of_the_worker_s_secret_are_made(tmp_path: Path) -> None:
    lines = [line for line in block_with("sh", "create secret").splitlines() if line.startswith("printf")]
    subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=tmp_path, check=True)
    assert {path.name for path in tmp_path.iterdir()} == set(keys_of_secret("worker"))
    assert all("\n" not in path.read_text() for path in tmp_path.iterdir())
    told = (FOLDER / "base" / "worker.toml").read_text("utf-8")
    (tmp_path / "worker.toml").write_text(told.replace("/etc/worker/secret", str(tmp_path)), "utf-8")
    manifests._read_worker(tmp_path / "worker.toml")


def test_the_image_is_built_pushed_and_named_where_an_overlay_asks_for_it() -> None:
    build, push, name = block_with("sh", "docker build").splitlines()
    dockerfile, image = shlex.split(build)[3], shlex.split(build)[5]
    assert (ROOT / dockerfile).is_file()
    assert push == f"docker push {image}"
    told = re.fullmatch(r"\(cd deploy/kubernetes/(\S+) && kustomize edit set image (\S+)=(\S+)\)", name)
    assert told is not None
    overlay, own, new = told.groups()
    assert new == image
    assert f"{own}:{image.rpartition(':')[2]}" in manifests.text_of(overlay)


def test_both_names_of_images_are_said() -> None:
    for overlay in ("overlays/dev", "overlays/prod"):
        asked = set(re.findall(r"image: (kafka-pubsub:\S+)", manifests.text_of(overlay)))
        assert len(asked) == 1
        assert f"`{asked.pop()}`" in PAGE


def test_each_secret_that_a_build_needs_is_named() -> None:
    rows = re.findall(
        r"^\| (`[^|]*`) \| (`[^|]*) \| [^|]*(?:Strimzi|operator|you)[^|]* \|$", PAGE, re.MULTILINE
    )
    named = {
        name: set(re.findall(r"`([^`]+)`", keys))
        for names, keys in rows
        for name in re.findall(r"`([^`]+)`", names)
    }
    needed = needed_secrets(built("overlays/prod"))
    assert set(named) == needed
    for name, keys in named.items():
        assert keys <= set(keys_of_secret(name)), name
    # All that the login, the worker and KEDA read.
    text = manifests.text_of("overlays/prod")
    for name in needed:
        assert {key for key in keys_of_secret(name) if key in text} - named[name] <= {"ca.crt"}, name
    assert needed_secrets(built("overlays/dev")) == set()


def overlay_of_the_page(folder: Path, change: dict[str, Any], *more: str) -> list[Resource]:
    """The resources of the page's overlay, which lies beside `deploy/`, with these keys and blocks besides."""
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    told = yaml.safe_load(block_with("yaml", "kind: Kustomization")) | change
    for text in more:
        told |= yaml.safe_load(text)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(told), "utf-8")
    return built(str(folder))


def images(resources: list[Resource]) -> set[str]:
    return {container["image"] for _, _, container in manifests.containers(resources)}


def test_the_overlay_of_the_page_has_all_that_it_needs(tmp_path: Path) -> None:
    resources = overlay_of_the_page(tmp_path, {})
    assert images(resources) == {
        "registry.example.com/shop:1.4",
        "registry.example.com/kafka-pubsub:0.1.0",
        "registry.example.com/kafka-pubsub-spark:0.1.0",
    }
    (container,) = of_kind(resources, "Deployment")["worker"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["run", "shop:app"]
    # Strimzi makes them in its namespace.
    made = {*of_kind(resources, "KafkaUser"), "my-cluster-cluster-ca-cert"}
    assert needed_secrets(resources) <= made
    assert {each["metadata"].get("namespace") for each in resources} == {STRIMZI}
    assert set(of_kind(resources, "KafkaTopic")) >= {"orders", "orders-dead"}
    assert f"kubectl -n {STRIMZI} get secret" in PAGE


def test_the_overlay_of_the_page_without_logins(tmp_path: Path) -> None:
    change = {
        "namespace": "shop",
        "resources": ["deploy/kubernetes/overlays/dev"],
        "components": ["deploy/kubernetes/components/app"],
    }
    resources = overlay_of_the_page(tmp_path, change, block_with("yaml", "configMapGenerator"))
    assert needed_secrets(resources) == set()
    assert set(of_kind(resources, "Namespace")) == {"shop"}
    assert {each["metadata"].get("namespace", "shop") for each in resources} == {"shop"}
    assert set(manifests._addresses(resources)) == {"kafka.example.com:9092"}
    assert not any("kafka-pubsub:dev" in each for each in images(resources))


def test_labels_for_prometheus_reach_what_its_selectors_see(tmp_path: Path) -> None:
    change = {"resources": ["deploy/kubernetes/overlays/prod"], "components": []}
    resources = overlay_of_the_page(tmp_path, change, block_with("yaml", "release:"))
    for kind in ("PodMonitor", "PrometheusRule"):
        found = of_kind(resources, kind).values()
        assert found
        assert {each["metadata"]["labels"]["release"] for each in found} == {"kube-prometheus-stack"}
    worker = of_kind(resources, "Deployment")["worker"]["spec"]
    assert "release" not in worker["selector"]["matchLabels"]


def test_secrets_are_copied_for_another_namespace(tmp_path: Path) -> None:
    text = block_with("sh", "create namespace")
    for path in re.findall(r" -[kf] (deploy/\S+)", text):
        assert (ROOT / path).exists(), path
    program = tmp_path / "kubectl"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '*" get secret "*) printf \'{"key":"dmFsdWU="}\' ;;\n'
        '*" apply -f -") cat >> copies ;;\n'
        "esac\n",
        "utf-8",
    )
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", text], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    copies = [json.loads(line) for line in (tmp_path / "copies").read_text("utf-8").splitlines()]
    assert {each["metadata"]["name"] for each in copies} == needed_secrets(built("base")) - {"worker"}
    assert copies[0] | {"metadata": {}} == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {},
        "data": {"key": "dmFsdWU="},
    }


def test_strimzi_s_kafka_is_the_one_that_the_builds_ask() -> None:
    kafka = yaml.safe_load(block_with("yaml", "kind: Kafka\n"))
    resources = built("overlays/prod")
    users = of_kind(resources, "KafkaUser").values()
    assert {each["apiVersion"] for each in users} == {kafka["apiVersion"]}
    name = kafka["metadata"]["name"]
    assert {each["metadata"]["labels"]["strimzi.io/cluster"] for each in users} == {name}
    assert {each["metadata"]["namespace"] for each in users} == {kafka["metadata"]["namespace"]}
    (listener,) = kafka["spec"]["kafka"]["listeners"]
    assert set(manifests._addresses(resources)) == {f"{name}-kafka-bootstrap:{listener['port']}"}
    for user in users:
        assert user["spec"]["authentication"] == listener["authentication"]
        assert user["spec"]["authorization"]["type"] == kafka["spec"]["kafka"]["authorization"]["type"]
    told = kafka["spec"]["kafka"]["config"]
    for topic in of_kind(resources, "KafkaTopic").values():
        assert topic["spec"]["replicas"] == told["default.replication.factor"]
        assert int(topic["spec"]["config"]["min.insync.replicas"]) == told["min.insync.replicas"]
    assert set(kafka["spec"]["entityOperator"]) == {"topicOperator", "userOperator"}


def test_the_image_of_spark_installs_what_the_extra_names() -> None:
    (text,) = blocks("dockerfile")
    installed = {str(Requirement(each)) for each in re.findall(r"'([\w-]+[<>=!][^']*)'", text)}
    metadata = project()["project"]
    base = {Requirement(each).name for each in metadata["dependencies"]}
    extra = map(Requirement, metadata["optional-dependencies"]["spark"])
    assert installed == {str(each) for each in extra if each.name not in base}


def test_the_image_of_spark_takes_pip_as_the_page_on_images_does() -> None:
    # A container test builds both.
    pip = re.compile(r"^FROM kafka-pubsub AS build\nUSER 0\nRUN .* install --no-cache-dir", re.MULTILINE)
    (text,) = blocks("dockerfile")
    other = (ROOT / "docs" / "compose.md").read_text("utf-8")
    assert pip.findall(text) == pip.findall(other) != []


def test_the_pods_of_the_page_are_those_of_the_base() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE))
    resources = built("overlays/prod")
    names = {*of_kind(resources, "Deployment"), *of_kind(resources, "CronJob")}
    assert set(rows) == names
    assert set(rows.values()) <= set(of_kind(resources, "KafkaUser"))
