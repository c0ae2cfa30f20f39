"""Logins at a secured broker: passwords, certificates and tokens work, wrong ones are named, secrets never."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka_pubsub import DelayRouter, Message, PubSub, PubSubError, aio
from kafka_pubsub.app import ConfigValue
from kafka_pubsub.errors import BrokerUnavailable, InvalidArgument, PermissionDenied
from tests.secured import PASSWORD, Certificates, Issuer, SecuredKafka, secured_kafka
from tests.support import until

Config = Mapping[str, ConfigValue]
WRONG = "wrong-battery-1937"
#: Seconds for an error; and for a machine that is busy with other tests.
SOON = 5.0 + 5.0
LOGINS = "org.apache.kafka.common.security"


class Tokens:
    """An `oauth_cb` that fails on demand."""

    def __init__(self, issuer: Issuer, life: float = 300, audience: str = "kafka") -> None:
        self._issuer, self._life, self._audience = issuer, life, audience
        self.failing = False
        self.given: list[str] = []

    def __call__(self, _: str) -> tuple[str, float]:
        if self.failing:
            raise OSError("the login server is down")
        token = self._issuer.token("shop", self._life, self._audience)
        self.given.append(token[0])
        return token


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured"), issuer) as kafka:
        yield kafka


def scram(broker: SecuredKafka, password: str = PASSWORD) -> dict[str, ConfigValue]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "shop",
        "sasl.password": password,
        "ssl.ca.location": str(broker.certificates.ca),
    }


def mtls(broker: SecuredKafka, certificate: Path) -> dict[str, ConfigValue]:
    return {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(certificate),
        "ssl.ca.location": str(broker.certificates.ca),
    }


def oauth(broker: SecuredKafka, tokens: Tokens) -> dict[str, ConfigValue]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": tokens,
        "ssl.ca.location": str(broker.certificates.ca),
    }


def work(address: str, config: Config, name: str, *, router: bool = False) -> None:
    """Uses each kind of client: admin, catalog, publisher, stream, and with a router its transactions."""
    with PubSub(address, config=config) as ps:
        topic = ps.create_topic(name, partitions=1)
        ps.create_subscription(f"{name}-sub", topic=name)
        got: list[bytes] = []

        def take(message: Message) -> None:
            got.append(message.data)
            message.ack()

        with ps.subscription(f"{name}-sub").pull(take):
            topic.publish(b"now").result(30)
            until(lambda: got == [b"now"])
            if router:
                with DelayRouter(ps, tiers=2, partitions=1):
                    topic.publish(b"later", delay=0.2).result(30)
                    until(lambda: got == [b"now", b"later"])
        assert ps.subscription(f"{name}-sub").state().backlog == 0


def look_around(address: str, config: Config) -> None:
    with PubSub(address, config=config) as ps:
        ps.list_topics()


def test_a_password_a_certificate_and_a_token_work(
    broker: SecuredKafka, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(issuer)
    with caplog.at_level(logging.DEBUG):
        work(broker.scram, scram(broker), "by-scram")
        look_around(broker.scram, {**scram(broker), "sasl.mechanism": "PLAIN"})
        work(broker.mtls, mtls(broker, broker.certificates.issue("shop")), "by-certificate")
        work(broker.oauth, oauth(broker, tokens), "by-token", router=True)
        tell_no_secret(caplog.text + broker.log, PASSWORD, *tokens.given)
    # All clients of a cluster share a token.
    assert len(tokens.given) == 1


def test_coroutines_log_in_too(broker: SecuredKafka, issuer: Issuer) -> None:
    async def names() -> list[str]:
        async with aio.PubSub(broker.oauth, config=oauth(broker, Tokens(issuer))) as ps:
            await ps.create_topic("by-coroutine", partitions=1)
            return [each.name for each in await ps.list_topics()]

    assert "by-coroutine" in asyncio.run(names())


def test_a_file_of_kafkas_tools_logs_in(
    broker: SecuredKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    file = tmp_path / "scram.properties"
    file.write_text(
        f"bootstrap.servers={broker.scram}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={broker.certificates.ca}\n"
        f"sasl.jaas.config={LOGINS}.scram.ScramLoginModule required \\\n"
        f'  username="shop" password="${{directory:{tmp_path}:password}}";\n'
    )
    with PubSub(config_file=file) as ps:
        ps.list_topics()
    other = tmp_path / "mtls.properties"
    other.write_text(
        f"bootstrap.servers={broker.mtls}\nsecurity.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={broker.certificates.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={broker.certificates.issue('shop')}\n"
    )
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG_FILE", str(other))
    with PubSub() as ps:
        ps.list_topics()


def refusal(address: str, config: Config) -> PubSubError:
    """The error of a first call, which comes soon."""
    began = time.monotonic()
    with pytest.raises(PubSubError) as caught, PubSub(address, config=config) as ps:
        ps.list_topics()
    assert time.monotonic() - began < SOON
    return caught.value


def refusals(attempts: Sequence[tuple[str, Config]]) -> list[PubSubError]:
    """The errors of several first calls at the same time."""
    with ThreadPoolExecutor(len(attempts)) as pool:
        return list(pool.map(lambda each: refusal(*each), attempts))


def test_a_wrong_password_is_named_and_told_nowhere(
    broker: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    several = f"{broker.scram},localhost:{broker.scram.rpartition(':')[2]}"
    for error in refusals([(address, scram(broker, WRONG)) for address in (broker.scram, several)]):
        assert isinstance(error, PermissionDenied)
        assert "the broker refused the login; check security.protocol and the sasl.*" in error.message
        tell_no_secret(error.message)
    error = refusal(broker.scram, {**scram(broker), "sasl.mechanism": "SCRAM-SHA-256"})
    assert "broker's supported mechanisms: SCRAM-SHA-512,PLAIN" in error.message
    tell_no_secret(caplog.text + broker.log, WRONG, PASSWORD)


def test_foreign_expired_and_missing_certificates_are_named(broker: SecuredKafka, tmp_path: Path) -> None:
    others = Certificates(tmp_path, "other")
    foreign, expired = others.issue("shop"), broker.certificates.issue("shop", days=-1)
    nothing = {**mtls(broker, foreign)}
    del nothing["ssl.certificate.location"], nothing["ssl.key.location"]
    for error in refusals(
        [(broker.mtls, each) for each in (mtls(broker, foreign), mtls(broker, expired), nothing)]
    ):
        assert isinstance(error, PermissionDenied)
        assert "refused this client's certificate: it is missing, has expired, or its CA" in error.message
        assert "ssl.certificate.location" in error.message
    error = refusal(broker.scram, {**scram(broker), "ssl.ca.location": str(others.ca)})
    assert "ssl.ca.location" in error.message
    gone = refusal(broker.mtls, mtls(broker, tmp_path / "gone.pem"))
    assert isinstance(gone, InvalidArgument)
    assert f"config['ssl.certificate.location']: {tmp_path}/gone.pem: No such file" in gone.message


def test_a_wrong_protocol_is_named(broker: SecuredKafka) -> None:
    error = refusal(broker.scram, {})
    assert isinstance(error, BrokerUnavailable)
    assert "if it expects TLS or a login, set security.protocol" in error.message
    error = refusal(broker.bootstrap, {**scram(broker), "security.protocol": "SSL"})
    assert "connecting to a PLAINTEXT broker listener?" in error.message


def test_wrong_and_missing_tokens_are_named(broker: SecuredKafka, issuer: Issuer) -> None:
    foreign = Tokens(issuer, audience="another")
    error = refusal(broker.oauth, oauth(broker, foreign))
    assert isinstance(error, PermissionDenied)
    assert '{"status":"invalid_token"}' in error.message
    tell_no_secret(error.message, *foreign.given)
    failing = Tokens(issuer)
    failing.failing = True
    error = refusal(broker.oauth, oauth(broker, failing))
    assert "config['oauth_cb'] raised OSError: the login server is down" in error.message
    nothing = oauth(broker, failing)
    del nothing["oauth_cb"]
    assert "needs a source of tokens" in refusal(broker.oauth, nothing).message


def test_a_stream_goes_on_after_logins_failed_for_a_while(
    broker: SecuredKafka, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(issuer, life=5)
    with PubSub(broker.bootstrap) as owner, PubSub(broker.oauth, config=oauth(broker, tokens)) as ps:
        home = owner.create_topic("relogin", partitions=1)
        owner.create_subscription("relogin-sub", topic="relogin")
        got: list[bytes] = []

        def take(message: Message) -> None:
            got.append(message.data)
            message.ack()

        with ps.subscription("relogin-sub").pull(take) as stream:
            home.publish(b"before").result(30)
            until(lambda: got == [b"before"])
            tokens.failing = True
            until(lambda: "config['oauth_cb'] raised OSError" in caplog.text)
            # The token at hand expires, and the broker asks for another login.
            until(lambda: "the broker refused the login" in caplog.text)
            home.publish(b"after").result(30)
            tokens.failing = False
            until(lambda: got == [b"before", b"after"])
            assert not stream.done()
    tell_no_secret(caplog.text + broker.log, *tokens.given)


def tell_no_secret(text: str, *secrets: str) -> None:
    """Fails if a text has one of the secrets, without showing it."""
    found = [place for place, secret in enumerate(secrets or (PASSWORD, WRONG)) if secret in text]
    assert not found, f"secrets {found} were told"
