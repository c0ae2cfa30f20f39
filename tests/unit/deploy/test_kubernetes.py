"""`deploy/kubernetes` builds, fits three versions of Kubernetes, and agrees with the program."""

from __future__ import annotations

import copy
import urllib.request
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from kafka_pubsub.handlers.health import HealthServer, Report
from tests.unit.house.repository import ROOT

pytest.importorskip("yaml", reason="needs the extra dev: pip install -e '.[dev]'")
kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="needs the extra dev: pip install -e '.[dev]'"
)

import yaml  # noqa: E402  # behind the skips

from tests.unit.deploy import manifests  # noqa: E402
from tests.unit.deploy.manifests import BUILDS, Resource, built, name_of, of_kind  # noqa: E402

#: The versions that the makers of Kubernetes look after.
VERSIONS = ("1.35", "1.36", "1.37")
PROD = "overlays/prod"
#: Each file of schemas is large, and read anew for each resource.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


def mistakes(resources: Sequence[Resource], folder: Path) -> list[str]:
    """All that the checks find, of a build that has everything."""
    checks: list[Callable[[Sequence[Resource]], list[str]]] = [
        manifests.wrong_ports,
        manifests.wrong_ends,
        manifests.wrong_tries,
        manifests.wrong_security,
        manifests.wrong_spares,
        manifests.wrong_scaling,
        manifests.wrong_topics,
        manifests.wrong_shapes,
    ]
    found = [line for check in checks for line in check(resources)]
    found += manifests.wrong_commands(resources, folder) + manifests.wrong_files(resources, folder)
    return found + (manifests.wrong_rights(resources) if of_kind(resources, "KafkaUser") else [])


def refused(resources: Sequence[Resource], version: str) -> list[str]:
    """The mistakes that a version of Kubernetes finds, unknown fields included; kinds of operators aren't looked at."""
    found = []
    for each in resources:
        if each["kind"] in manifests.SCHEMAS:
            continue
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{name_of(each)}: {'.'.join(map(str, error.path))}: {error.message}")
    return found


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_says_only_what_the_product_can_do(build: str, tmp_path: Path) -> None:
    resources = built(build)
    assert len(resources) > 10
    assert mistakes(resources, tmp_path) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_everything(version: str) -> None:
    assert [line for build in BUILDS[1:] for line in refused(built(build), version)] == []


def test_kubernetes_refuses_an_unknown_field() -> None:
    (worker,) = [each for each in built(PROD) if name_of(each) == "Deployment worker"]
    worker["spec"]["template"]["spec"]["terminationGracePeriod"] = 30
    assert "terminationGracePeriod" in str(refused([worker], VERSIONS[-1]))


@pytest.mark.parametrize("build", ["base", PROD])
def test_an_app_takes_the_worker_s_place(build: str, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    folder = Path(*[".."] * len(overlay.parts[1:]), *manifests.FOLDER.parts[1:])
    (overlay / "kustomization.yaml").write_text(
        f"resources: [{folder}/{build}]\ncomponents: [{folder}/components/app]\n", "utf-8"
    )
    resources = built(str(overlay))
    pod = of_kind(resources, "Deployment")["worker"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][:2] == ["run", "shop:app"]
    assert {each["name"] for each in pod["volumes"]} == {"kafka", "kafka-ca", "kafka-user", "tmp"}
    assert {each["name"] for each in pod["containers"][0]["volumeMounts"]} == {
        each["name"] for each in pod["volumes"]
    }
    assert "worker" not in manifests.needed_secrets(resources)
    assert mistakes(resources, tmp_path / "files") == []
    assert refused(resources, VERSIONS[-1]) == []


def test_the_rules_are_those_of_deploy_observe() -> None:
    (rule,) = of_kind(built(PROD), "PrometheusRule").values()
    said = yaml.safe_load((ROOT / "deploy" / "observe" / "rules.yml").read_text("utf-8"))
    assert rule["spec"] == said


@pytest.mark.parametrize(("kind", "folder"), [("KafkaUser", "access"), ("KafkaTopic", "topology")])
def test_users_and_topics_are_those_of_the_rest_of_deploy(kind: str, folder: str) -> None:
    found = of_kind(built(PROD), kind)
    said: dict[str, Resource] = {}
    for path in (ROOT / "deploy" / folder / "strimzi").glob("*.yaml"):
        said |= of_kind(list(yaml.safe_load_all(path.read_text("utf-8"))), kind)
    assert said
    for name, each in said.items():
        spec = copy.deepcopy(found[name]["spec"])
        if kind == "KafkaTopic":
            # The overlay's copies.
            assert spec.pop("replicas") == 3
            assert spec["config"].pop("min.insync.replicas") == "2"
        assert spec == each["spec"]


def test_the_numbers_of_services_are_those_of_the_program() -> None:
    from kafka_pubsub.cli import service

    assert manifests.GRACES["service"] == service._STOPPING


def test_the_paths_of_probes_are_answered() -> None:
    with HealthServer("127.0.0.1:0", lambda: Report(True, True, {})) as server:
        for path in manifests.HEALTH:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
                assert answer.status == 200


def test_the_paths_of_probes_are_the_worker_s_without_a_token() -> None:
    from kafka_pubsub.worker.rest.access import _OPEN

    assert manifests.HEALTH <= _OPEN


#: Part of a resource's text, another text in its place, and words that the checks then say.
BROKEN = [
    ("--grace=30s", "--graze=30s", "No such option"),
    ("- sequencer\n", "- sequenzer\n", "No such command"),
    ("--since=26h", "--since=yesterday", "is not a time"),
    ("--http=0.0.0.0:9466", "--http=0.0.0.0:9467", "Deployment monitor: ports"),
    ("path: /readyz", "path: /ready", "readinessProbe"),
    ("path: /metrics", "path: /metric", "PodMonitor"),
    ("terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 40", "may take 45"),
    ("backoffLimit: 0", "backoffLimit: 2", "audit: backoffLimit 2"),
    ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "writes its root"),
    ("runAsNonRoot: true", "runAsNonRoot: false", "runs as root"),
    ("defaultMode: 288", "defaultMode: 256", "has the mode 400"),
    ("subscription = ", "subscriptions = ", "subscriptions"),
    ("/etc/worker/secret/webhook", "/etc/worker/secret/hook", "can't be read"),
    ("[rest]", "[rst]", "there is no table 'rst'"),
    ("ssl.truststore.type=PEM", "ssl.truststore.type=JKS", "ssl.truststore.type=PEM"),
    ("/etc/kafka/user:user.password", "/etc/kafka/user:password", "can't read"),
    ("consumerGroup: billing", "consumerGroup: bill", "no subscription bill of orders"),
    ("maxReplicaCount: 12", "maxReplicaCount: 13", "more pods than the 12 partitions"),
    ("lagThreshold:", "lagTreshold:", "lagTreshold"),
    ("bootstrapServers: my-", "bootstrapServers: your-", "asks your-cluster"),
    ("replicas: 3", "replicas: 2", "2 copies, of which 2 must be there"),
    ("secretName: router", "secretName: publisher", "Deployment router: publisher lacks"),
    ("topicName: _kafka_pubsub.catalog", "topicname: _kafka_pubsub.catalog", "topicname"),
    ("kind: PodDisruptionBudget", "kind: PodDisruptionBudgets", "no disruption budget"),
]


@pytest.mark.parametrize(("part", "instead", "said"), BROKEN, ids=[each[1][:30] for each in BROKEN])
def test_a_mistake_is_found(part: str, instead: str, said: str, tmp_path: Path) -> None:
    text = manifests.text_of(PROD)
    assert part in text
    found = mistakes(list(yaml.safe_load_all(text.replace(part, instead))), tmp_path)
    assert said in "\n".join(found)
    assert found
