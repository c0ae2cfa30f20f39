"""TLS, SCRAM and access rules end to end: each part is a container of its own, with its login and only its rights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from docker.models.containers import Container

from kafka_pubsub import PubSub, PubSubError
from kafka_pubsub.access.rights import Access, rules_of
from tests.cluster_view import cluster_view
from tests.containers.cluster import PATIENCE, PORT, environment
from tests.containers.engine import OwnNetwork
from tests.integration.test_access_rules import KINDS, GuardedKafka, Rights, operation_of
from tests.secured import PASSWORD, Certificates, add_user
from tests.support import until

#: The broker's address in the network, and the port at which users log in.
NUMBER, LOGIN = 20, 9094
ORDERS = Access(["orders"], "billing", "orders-dead", ["dead-letters"])
#: The parts, each with its role and the names with which it works.
PARTS: Final = {
    "admin": (
        "admin",
        Access(["orders", "orders-dead"], "billing", "orders-dead", ["dead-letters", "delays"]),
    ),
    "auditing": ("admin", Access(["orders"], "audit")),
    "publisher": ("publisher", Access(["orders"], extras=["delays"])),
    "subscriber": ("subscriber", Access(["orders"], "audit")),
    "worker": ("subscriber", ORDERS),
    "operator": ("subscriber", ORDERS._replace(extras=["dead-letters", "replay"])),
    "router": ("router", Access(["orders"])),
}
SHOP = """
import sys
from kafka_pubsub import App, DeadLetterPolicy, Message, RetryPolicy
app = App()
at_once, dead = RetryPolicy(min_backoff=0, max_backoff=0), DeadLetterPolicy(topic="orders-dead", max_attempts=2)
@app.subscriber("billing", topic="orders", message_ordering=True, retry=at_once, dead_letter=dead)
def charge(message: Message) -> None:
    if message.data == b"bad":
        raise ValueError("not this one")
    print("charged", message.data.decode(), flush=True)
"""
PROPERTIES = """
bootstrap.servers={address}:{port}
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{user}" password="${{directory:/run/secrets:kafka-password}}";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
"""


class Secured:
    """A broker in a container, and parts that log in there."""

    def __init__(self, network: OwnNetwork, image: str, folder: Path, certificates: Certificates) -> None:
        self._network, self._image, self._folder, self._certificates = network, image, folder, certificates
        self._address = network.address(NUMBER)
        self.bootstrap, self.login = f"{self._address}:{PORT}", f"{self._address}:{LOGIN}"
        self.broker = GuardedKafka(self.bootstrap, self.login)

    def grant(self, part: str) -> None:
        """A part has the rights of its role, and a password."""
        add_user(self.broker.admin, part)
        role, access = PARTS[part]
        rights: Rights = {}
        for rule in rules_of(role, access):
            rights.setdefault((KINDS[rule.type], rule.name), []).extend(map(operation_of, rule.operations))
        self.broker.grant(rights, part)

    @contextmanager
    def part(self, name: str, command: Sequence[str]) -> Iterator[Container]:
        """Runs a command of ours in a container with the part's login."""
        settings, secrets = self._folder / f"{name}-login", self._folder / f"{name}-secrets"
        for each in (settings, secrets):
            each.mkdir(exist_ok=True)
        (settings / "ca.pem").write_bytes(self._certificates.ca.read_bytes())
        (settings / "client.properties").write_text(
            PROPERTIES.format(address=self._address, port=LOGIN, user=name)
        )
        (secrets / "kafka-password").write_text(PASSWORD)
        app = self._folder / "app"
        container = (
            self._network.container(self._image, read_only=True, working_dir="/srv")
            .with_volume_mapping(settings, "/etc/kafka", "ro")
            .with_volume_mapping(secrets, "/run/secrets", "ro")
            .with_volume_mapping(app, "/srv", "ro")
            .with_envs(KAFKA_PUBSUB_CONFIG_FILE="/etc/kafka/client.properties")
            .with_command(list(command))
        )
        with container:
            yield container.get_wrapped_container()

    def run(self, name: str, *command: str, code: int = 0) -> str:
        """Runs a command to its end, which is `code`; returns its output."""
        with self.part(name, command) as container:
            status = container.wait(timeout=PATIENCE)["StatusCode"]
            assert status == code, said(container)
            return said(container)

    def config(self, user: str, password: str = PASSWORD, ca: Path | None = None) -> dict[str, str]:
        """The settings of a client on this machine."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(ca or self._certificates.ca),
        }


def said(container: Container) -> str:
    return str(container.logs().decode("utf-8", "replace"))


@pytest.fixture(scope="module")
def secured(
    network: OwnNetwork, image: str, kafka_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    # The image's users aren't ours.
    for each in (folder, folder.parent):
        each.chmod(0o755)
    address = network.address(NUMBER)
    certificates = Certificates(folder, addresses=[address])
    store = certificates.issue("broker")
    (folder / "app").mkdir()
    (folder / "app" / "shop.py").write_text(SHOP)
    (folder / "app" / "delays.json").write_text('{"tiers": 4, "partitions": 1}')
    (folder / "app" / "worker.toml").write_text('[apps]\nshop = "shop:app"\n')
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        # By this listener tests come without a login, and may do everything.
        "listeners": f"CLIENT://:{PORT},CONTROLLER://:9093,LOGIN://:{LOGIN}",
        "advertised.listeners": f"CLIENT://{address}:{PORT},LOGIN://{address}:{LOGIN}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL",
        "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.login.scram-sha-512.sasl.jaas.config": scram,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"/certificates/{store.name}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = (
        network.container(kafka_image, NUMBER)
        .with_envs(**environment(address, 1, {1: address}, settings))
        .with_volume_mapping(folder, "/certificates", "ro")
    )
    with broker:
        until(lambda: cluster_view(PORT, host=address), "the secured broker answers", PATIENCE)
        yield Secured(network, image, folder, certificates)


@pytest.mark.timeout(600)
def test_each_part_works_with_its_login_and_only_its_rights(secured: Secured) -> None:
    for part in PARTS:
        secured.grant(part)
    with ExitStack() as parts:
        for command in (
            ("topic", "create", "orders", "--partitions", "2"),
            ("topic", "create", "orders-dead", "--partitions", "1"),
            ("topology", "apply", "--file", "delays.json"),
        ):
            secured.run("admin", *command)
        secured.run("auditing", "subscription", "create", "audit", "--topic", "orders", "--ordering")
        at_once = ("--min-backoff", "0s", "--max-backoff", "0s")
        dead = ("--dead-letter-topic", "orders-dead", "--max-attempts", "2", *at_once)
        secured.run("admin", "subscription", "create", "billing", "--topic", "orders", "--ordering", *dead)
        router = parts.enter_context(secured.part("router", ["service", "router"]))
        worker = parts.enter_context(secured.part("worker", ["worker", "--config", "worker.toml"]))
        for body, more in (("good", ()), ("bad", ()), ("later", ("--delay", "1s"))):
            secured.run("publisher", "publish", "orders", body, "--key", body, *more)
        seen = secured.run("subscriber", "--json", "pull", "audit", "--ack", "--max", "3", "--timeout", "60s")
        assert {json.loads(line)["data"] for line in seen.splitlines()} == {"good", "bad", "later"}
        until(
            lambda: {"charged good", "charged later"} <= set(said(worker).splitlines()),
            "both are charged",
            PATIENCE,
        )
        dead_letters = secured.run("operator", "--json", "deadletter", "list", "billing")
        assert [each["key"] for each in json.loads(dead_letters)] == ["bad"]
        assert "this client needs" not in said(worker) + said(router)


@pytest.mark.timeout(600)
def test_a_part_without_a_right_or_a_login_is_told_so(secured: Secured, tmp_path: Path) -> None:
    with PubSub(secured.bootstrap) as owner:
        topic = owner.create_topic("stock", partitions=1, exist_ok=True)
        owner.create_subscription("counting", topic, exist_ok=True)
    secured.grant("publisher")
    for command in (("publish", "stock", "x"), ("pull", "counting")):
        assert "needs DESCRIBE on topic 'stock'" in secured.run("publisher", *command, code=1)
    foreign = Certificates(tmp_path, "foreign").ca
    for config, complaint in (
        (secured.config("publisher", "wrong"), "invalid credentials"),
        (secured.config("publisher", ca=foreign), "certificate"),
        ({}, "TLS"),
    ):
        with pytest.raises(PubSubError, match=complaint), PubSub(secured.login, config=config) as refused:
            refused.create_topic("more")
