"""The resources that `deploy/kubernetes` builds, and their mistakes, as texts that name the resource.

Rules
1. A check gets all resources of one build, and returns a line for each mistake. So a test can break a resource, and
   see that the check finds the mistake.
2. A command is read by the real command line, a file by the real reader, a right is looked up in the real rights.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
import jsonschema
import yaml

from kafka_pubsub.access.rights import Access, rules_of
from kafka_pubsub.cli.main import cli
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.worker.connectors import make_connector
from kafka_pubsub.worker.secrets import resolve
from kafka_pubsub.worker.settings import ConnectorSettings, read, read_rest
from tests.unit.house.repository import ROOT

#: A resource, as YAML has resources.
Resource = dict[str, Any]

FOLDER = ROOT / "deploy" / "kubernetes"
BUILDS = ("base", "overlays/dev", "overlays/prod")
SCHEMAS: Mapping[str, Any] = json.loads(Path(__file__).with_name("custom_resources.json").read_text("utf-8"))
#: Seconds that a program may take to leave its groups, after its work has ended.
LEAVING = 15
#: Without an option. Of services: `_STOPPING` of kafka_pubsub/cli/service.py. `metrics` has begun nothing.
GRACES = {"worker": 30.0, "run": 30.0, "service": 30.0, "metrics": 0.0}
HEALTH = {"/livez", "/readyz"}


def kubectl() -> str | None:
    """The program of the extra `dev`, else that of the machine; None: there is none."""
    own = Path(sys.executable).with_name("kubectl")
    return str(own) if own.exists() else shutil.which("kubectl")


@cache
def text_of(build: str) -> str:
    """The output of `kubectl kustomize`; raises with its error."""
    program = kubectl()
    assert program is not None
    done = subprocess.run(
        [program, "kustomize", str(FOLDER / build)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def built(build: str) -> list[Resource]:
    """The resources of a build, the caller's to change."""
    return list(yaml.safe_load_all(text_of(build)))


def name_of(resource: Resource) -> str:
    return f"{resource['kind']} {resource['metadata']['name']}"


def of_kind(resources: Sequence[Resource], kind: str) -> dict[str, Resource]:
    return {each["metadata"]["name"]: each for each in resources if each["kind"] == kind}


def pods(resources: Sequence[Resource]) -> Iterator[tuple[str, Resource]]:
    """The specification of each pod, under the name of its maker."""
    for each in resources:
        if each["kind"] == "Deployment":
            yield name_of(each), each["spec"]["template"]["spec"]
        if each["kind"] == "CronJob":
            yield name_of(each), each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def containers(resources: Sequence[Resource]) -> Iterator[tuple[str, Resource, Resource]]:
    for name, pod in pods(resources):
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            yield name, pod, container


def command_lines(container: Resource) -> list[list[str]]:
    """The arguments of `kafka-pubsub`, as words; of a shell each line is a command."""
    if "command" not in container:
        return [container["args"]]
    assert container["command"] == ["sh", "-euc"]
    lines = [shlex.split(line) for line in container["args"][0].splitlines()]
    assert {line[0] for line in lines} == {"kafka-pubsub"}
    return [line[1:] for line in lines]


def parsed(words: Sequence[str]) -> click.Context:
    """The context of the command that the words name, whose options and arguments are checked; raises `UsageError`."""
    context = cli.make_context("kafka-pubsub", list(words))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context


def files_of(resources: Sequence[Resource], pod: Resource, container: Resource) -> dict[str, str | None]:
    """The text at each path that is mounted from a ConfigMap or Secret; None: not in the build."""
    volumes = {each["name"]: each for each in pod["volumes"]}
    maps, secrets = of_kind(resources, "ConfigMap"), of_kind(resources, "Secret")
    found: dict[str, str | None] = {}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        if "configMap" in volume:
            for key, text in maps[volume["configMap"]["name"]]["data"].items():
                found[f"{mount['mountPath']}/{key}"] = text
        elif "secret" in volume:
            secret = volume["secret"]["secretName"]
            known = secrets.get(secret, {}).get("data", {})
            for key in known or keys_of_secret(secret):
                found[f"{mount['mountPath']}/{key}"] = (
                    base64.b64decode(known[key]).decode() if known else None
                )
    return found


def keys_of_secret(name: str) -> tuple[str, ...]:
    """The keys of a Secret that somebody else makes: Strimzi, or the reader of docs/kubernetes.md."""
    if name == "worker":
        return ("token", "read-token", "webhook")
    if name.endswith("-cluster-ca-cert"):
        return ("ca.crt", "ca.p12", "ca.password")
    return ("ca.crt", "user.crt", "user.key", "user.p12", "user.password")


def needed_secrets(resources: Sequence[Resource]) -> set[str]:
    """The Secrets that pods, Prometheus and KEDA read and that the build doesn't have."""
    found = {
        volume["secret"]["secretName"]
        for _, pod in pods(resources)
        for volume in pod["volumes"]
        if "secret" in volume
    }
    for monitor in of_kind(resources, "PodMonitor").values():
        for each in monitor["spec"]["podMetricsEndpoints"]:
            if "authorization" in each:
                found.add(each["authorization"]["credentials"]["name"])
    for login in of_kind(resources, "TriggerAuthentication").values():
        found |= {each["name"] for each in login["spec"]["secretTargetRef"]}
    return found - set(of_kind(resources, "Secret"))


def lay_out(files: Mapping[str, str | None], folder: Path) -> dict[str, str]:
    """Writes the files below a folder, with the new paths in their texts; returns the new beginning of each path."""
    moved = {"/etc/": f"{folder}/etc/"}
    for path, text in files.items():
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        # A value that fits wherever a secret is checked: a key of Standard Webhooks.
        known = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" if text is None else text
        place.write_text(known.replace("/etc/", moved["/etc/"]), "utf-8")
    return moved


def with_paths(words: Sequence[str], moved: Mapping[str, str]) -> list[str]:
    found = list(words)
    for old, new in moved.items():
        found = [word.replace(old, new) for word in found]
    return found


def wrong_commands(resources: Sequence[Resource], folder: Path) -> list[str]:
    """Commands, options and arguments that the command line doesn't have."""
    found = []
    for number, (name, pod, container) in enumerate(containers(resources)):
        moved = lay_out(files_of(resources, pod, container), folder / str(number))
        for words in command_lines(container):
            try:
                parsed(with_paths(words, moved))
            except click.UsageError as error:
                found.append(f"{name}: {shlex.join(words)}: {error.format_message()}")
    return found


def wrong_files(resources: Sequence[Resource], folder: Path) -> list[str]:
    """Files of workers, and of logins, that their readers refuse."""
    from kafka_pubsub.log.kafka.config_file import read_config_file, read_java_file

    found = []
    for number, (name, pod, container) in enumerate(containers(resources)):
        files = files_of(resources, pod, container)
        lay_out(files, folder / str(number))
        login = dict(_variables(container)).get("KAFKA_PUBSUB_CONFIG_FILE", "no login")
        here = folder / str(number) / login.lstrip("/")
        try:
            read_config_file(here)
            read_java_file(here)
            for path in (each for each in files if each.endswith("worker.toml")):
                _read_worker(folder / str(number) / path.lstrip("/"))
        except InvalidArgument as error:
            found.append(f"{name}: {error.message}")
    return found


def _variables(container: Resource) -> Iterator[tuple[str, str]]:
    for each in container.get("env", []):
        yield each["name"], each["value"]


def _read_worker(path: Path) -> None:
    for unit in read(path).values():
        if isinstance(unit, ConnectorSettings):
            make_connector(resolve(dict(unit.config)))
    rest = read_rest(path)
    resolve({"token": rest.token, "read_token": rest.read_token})


def wrong_ports(resources: Sequence[Resource]) -> list[str]:
    """Ports on which no program of the pod listens, and probes of paths or ports that aren't there."""
    found = []
    for name, _, container in containers(resources):
        ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
        served = {_port(words) for words in command_lines(container)} - {None}
        if set(ports.values()) != served:
            found.append(f"{name}: ports {ports} and --http {served}")
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind, {}).get("httpGet")
            if served and (probe is None or probe["path"] not in HEALTH or probe["port"] not in ports):
                found.append(f"{name}: {kind} {probe}")
    return found + _wrong_scrapes(resources)


def _port(words: Sequence[str]) -> int | None:
    told = [re.fullmatch(r"--http=0\.0\.0\.0:(\d+)", word) for word in words]
    return next((int(each[1]) for each in told if each), None)


def _wrong_scrapes(resources: Sequence[Resource]) -> list[str]:
    found = []
    scraped = set()
    for monitor in of_kind(resources, "PodMonitor").values():
        selector = monitor["spec"]["selector"]
        wanted = set(selector.get("matchLabels", {}).values())
        for each in selector.get("matchExpressions", []):
            wanted |= set(each["values"])
        scraped |= wanted
        found += [
            f"{name_of(monitor)}: {each['port']}{each['path']}"
            for each in monitor["spec"]["podMetricsEndpoints"]
            if each["path"] != "/metrics" or each["port"] != "http"
        ]
    there = set(of_kind(resources, "Deployment"))
    if scraped and scraped != there:
        found.append(f"scraped are {sorted(scraped)}, and there are {sorted(there)}")
    return found


def wrong_tries(resources: Sequence[Resource]) -> list[str]:
    """Jobs whose second try hides the first one's failure, and jobs of which it isn't said."""
    found = []
    for name, job in of_kind(resources, "CronJob").items():
        tries = job["spec"]["jobTemplate"]["spec"].get("backoffLimit")
        # An audit judges what came since the last one, so only its first try can find something.
        if tries is None or (name == "audit" and tries != 0):
            found.append(f"{name}: backoffLimit {tries}")
    return found


def wrong_ends(resources: Sequence[Resource]) -> list[str]:
    """Pods that are killed before their program may have ended."""
    found = []
    for name, deployment in of_kind(resources, "Deployment").items():
        pod = deployment["spec"]["template"]["spec"]
        words = pod["containers"][0]["args"]
        option = next((word.partition("=")[2] for word in words if word.startswith("--grace=")), None)
        grace = float(option.removesuffix("s")) if option else GRACES[words[0]]
        given = pod["terminationGracePeriodSeconds"]
        if given < grace + LEAVING:
            found.append(f"{name}: {given} s for a program that may take {grace + LEAVING:g}")
    return found


def wrong_security(resources: Sequence[Resource]) -> list[str]:
    """Pods with rights that they don't need, without limits, or whose Secrets their user can't read."""
    found = []
    for name, pod, container in containers(resources):
        outer, inner = pod["securityContext"], container["securityContext"]
        checks = {
            "runs as root": not outer.get("runAsNonRoot") or not outer.get("runAsUser"),
            "seccomp": outer.get("seccompProfile") != {"type": "RuntimeDefault"},
            "token of the API": pod.get("automountServiceAccountToken") is not False,
            "escalation": inner.get("allowPrivilegeEscalation") is not False,
            "writes its root": inner.get("readOnlyRootFilesystem") is not True,
            "capabilities": inner.get("capabilities") != {"drop": ["ALL"]},
            "limits": "memory" not in container["resources"]["limits"],
            "requests": set(container["resources"]["requests"]) != {"cpu", "memory"},
            "no /tmp": "/tmp" not in {each["mountPath"] for each in container["volumeMounts"]},
        }
        found += [f"{name}: {mistake}" for mistake, wrong in checks.items() if wrong]
        for volume in pod["volumes"]:
            mode = volume.get("secret", {}).get("defaultMode", 0o440)
            if mode & 0o077 != 0o040 or "fsGroup" not in outer:
                found.append(f"{name}: Secret {volume['name']} has the mode {mode:o}")
    return found


def wrong_spares(resources: Sequence[Resource]) -> list[str]:
    """Deployments of several pods without a disruption budget or a spread, and budgets of nothing."""
    deployments = of_kind(resources, "Deployment")
    budgets = of_kind(resources, "PodDisruptionBudget")
    found = [f"PodDisruptionBudget {name}: no such Deployment" for name in set(budgets) - set(deployments)]
    for name, deployment in deployments.items():
        spec = deployment["spec"]
        selector = spec["selector"]
        if not set(selector["matchLabels"].items()) <= set(spec["template"]["metadata"]["labels"].items()):
            found.append(f"{name}: the selector doesn't fit the pods")
        if spec.get("replicas", 2) == 1:
            continue
        if name not in budgets or budgets[name]["spec"]["selector"] != selector:
            found.append(f"{name}: no disruption budget")
        spread = spec["template"]["spec"].get("topologySpreadConstraints", [])
        if {each["topologyKey"] for each in spread if each["labelSelector"] == selector} != {
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        }:
            found.append(f"{name}: not spread over nodes and zones")
    return found


def wrong_scaling(resources: Sequence[Resource]) -> list[str]:
    """Lags of groups that nothing of ours has, logins that can't see them, and more pods than partitions."""
    found = []
    logins = of_kind(resources, "TriggerAuthentication")
    address = next(iter(_addresses(resources)))
    for name, scaled in of_kind(resources, "ScaledObject").items():
        target = scaled["spec"]["scaleTargetRef"]["name"]
        deployment = of_kind(resources, "Deployment").get(target)
        if deployment is None or "replicas" in deployment["spec"]:
            found.append(f"{name}: {target} isn't a Deployment that leaves its number to KEDA")
        for trigger in scaled["spec"]["triggers"]:
            told = trigger["metadata"]
            if (told["consumerGroup"], told["topic"]) not in subscriptions_of(resources):
                found.append(f"{name}: no subscription {told['consumerGroup']} of {told['topic']}")
            if told["bootstrapServers"] != address:
                found.append(f"{name}: asks {told['bootstrapServers']}, and programs use {address}")
            partitions = of_kind(resources, "KafkaTopic")[told["topic"]]["spec"]["partitions"]
            if scaled["spec"]["maxReplicaCount"] > partitions:
                found.append(f"{name}: more pods than the {partitions} partitions of {told['topic']}")
            user = {
                each["name"]
                for each in logins[trigger["authenticationRef"]["name"]]["spec"]["secretTargetRef"]
                if each["parameter"] == "cert"
            }
            needs = {("topic", told["topic"]), ("group", told["consumerGroup"])}
            if len(user) != 1 or not needs <= _readable(resources, user.pop()):
                found.append(f"{name}: its login can't describe the group and the topic")
    return found


def _addresses(resources: Sequence[Resource]) -> Iterator[str]:
    for each in of_kind(resources, "ConfigMap").values():
        for text in each["data"].values():
            yield from re.findall(r"^bootstrap\.servers=(.*)$", text, re.MULTILINE)


def subscriptions_of(resources: Sequence[Resource]) -> set[tuple[str, str]]:
    """Subscriptions, each of which is a consumer group of its name, and their topics, by the files of workers."""
    found = set()
    for each in of_kind(resources, "ConfigMap").values():
        for connector in tomllib.loads(each["data"].get("worker.toml", "")).get("connectors", {}).values():
            found.add((connector.get("subscription"), connector.get("topic")))
    return found


def _readable(resources: Sequence[Resource], user: str) -> set[tuple[str, str]]:
    rules = of_kind(resources, "KafkaUser")[user]["spec"]["authorization"]["acls"]
    return {
        (each["resource"]["type"], each["resource"].get("name", ""))
        for each in rules
        if {"Read", "Describe"} & set(each["operations"])
    }


#: The role of each program, and its names: the example of deploy/access.
PROGRAMS: Mapping[str, tuple[str, Access]] = {
    "Deployment worker": ("subscriber", Access(["orders"], "billing", "orders-dead", ["dead-letters"])),
    "CronJob replay": (
        "subscriber",
        Access(["orders"], "billing", "orders-dead", ["dead-letters", "replay"]),
    ),
    "Deployment router": ("router", Access(["orders"])),
    "Deployment sequencer": ("sequencer", Access(["stock"])),
    "Deployment monitor": (
        "monitor",
        Access(["orders"], "billing", "orders-dead", ["delays", "dead-letters"]),
    ),
    # An audit looks at subscriptions, which the role `spark` alone may not.
    "CronJob audit": ("monitor", Access(["orders"], "billing", "orders-dead", ["dead-letters"])),
    "CronJob setup": ("admin", Access(["orders"], "billing", "orders-dead", ["dead-letters"])),
}


def wrong_rights(resources: Sequence[Resource]) -> list[str]:
    """Programs whose user is missing, or lacks a right of their role."""
    users = of_kind(resources, "KafkaUser")
    found = []
    for name, pod in pods(resources):
        role, access = PROGRAMS[name]
        secret = next(each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "kafka-user")
        granted = _granted(users.get(secret))
        for rule in rules_of(role, access):
            missing = set(rule.operations) - granted.get((rule.type, rule.name, rule.prefix), set())
            if missing:
                found.append(f"{name}: {secret} lacks {sorted(missing)} on {rule.type} {rule.name}")
    return found


def _granted(user: Resource | None) -> dict[tuple[str, str, bool], set[str]]:
    rules = user["spec"]["authorization"]["acls"] if user else []
    found = {}
    for each in rules:
        resource = each["resource"]
        name = resource.get("name", "kafka-cluster")
        found[resource["type"], name, resource.get("patternType") == "prefix"] = set(each["operations"])
    return found


def wrong_topics(resources: Sequence[Resource]) -> list[str]:
    """Topics of which a lost broker could take messages along, and names that two topics have."""
    found = []
    names: set[str] = set()
    for name, topic in of_kind(resources, "KafkaTopic").items():
        spec = topic["spec"]
        least = int(spec["config"].get("min.insync.replicas", 1))
        if not 1 < least < spec.get("replicas", 1):
            found.append(f"{name}: {spec.get('replicas')} copies, of which {least} must be there")
        kafka = spec.get("topicName", name)
        if kafka in names:
            found.append(f"{name}: {kafka} is there twice")
        names.add(kafka)
    return found


def wrong_shapes(resources: Sequence[Resource]) -> list[str]:
    """Resources of operators that have a field which we don't know, or a wrong value."""
    found = []
    for each in resources:
        known = SCHEMAS.get(each["kind"])
        if known is None:
            continue
        if each["apiVersion"] != known["apiVersion"] or set(each) != {
            "apiVersion",
            "kind",
            "metadata",
            "spec",
        }:
            found.append(f"{name_of(each)}: {each['apiVersion']} with {sorted(each)}")
        checker = jsonschema.Draft202012Validator(known["spec"])
        found += [
            f"{name_of(each)}: {'.'.join(map(str, error.path))}: {error.message}"
            for error in checker.iter_errors(each["spec"])
        ]
    return found
