"""One broker with all kinds of logins: SCRAM and PLAIN, client certificates, signed tokens; and access rules.

Theory. The embedded broker's plain listener stays, and who comes by it may do everything: the tests' owner. Others come
by the listeners `SCRAM`, `MTLS` and `OAUTH`, and may do what they are granted.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from kafka_pubsub.local import LocalKafka, broker_process
from kafka_pubsub.local.node_config import LOOPBACK, NodeSettings, server_properties
from kafka_pubsub.local.tcp_ports import free_ports

__all__ = ["PASSWORD", "Certificates", "Issuer", "SecuredKafka", "add_user", "secured_kafka"]

PASSWORD = "correct-horse-7361"
_MODULES = "org.apache.kafka.common.security"
#: Milliseconds after which a login by token has to be made anew.
_AGAIN_MS = 3000


class Certificates:
    """A CA and the certificates that it signs, as PEM files in a folder."""

    def __init__(self, folder: Path, name: str = "ca", addresses: Sequence[str] = (LOOPBACK,)) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._addresses = addresses
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(self._name, self._key.public_key(), days=1, ca=True)
        #: The CA's own certificate.
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, user: str, *, days: float = 1) -> Path:
        """Returns a file with the user's key and certificate; with negative `days` it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        made = self._signed(subject, key.public_key(), days=days)
        # Kafka reads keys in PKCS#8 only.
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._folder / f"{self.ca.stem}-{user}-{days}.pem"
        path.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
        return path

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: float, ca: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(each)) for each in self._addresses)]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )


class Issuer:
    """Signs tokens, and has the key with which a broker checks them in a file."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256"}
        for name, number in (("n", numbers.n), ("e", numbers.e)):
            key[name] = _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        self._keys = folder / "jwks.json"
        self._keys.write_text(json.dumps({"keys": [key]}))

    @property
    def address(self) -> str:
        """Where a broker finds the key."""
        return self._keys.as_uri()

    def token(self, user: str, life: float = 300, audience: str = "kafka") -> tuple[str, float]:
        """Returns what an `oauth_cb` returns."""
        now = time.time()
        claims = {
            "sub": user,
            "aud": audience,
            "iss": "tests",
            "iat": int(now),
            "exp": int(now + life),
            "scope": "k",
        }
        signed = f"{_part({'alg': 'RS256', 'kid': '1'})}.{_part(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}", now + life


def _part(values: Mapping[str, object]) -> str:
    return _base64(json.dumps(values).encode())


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def add_user(admin: AdminClient, name: str, password: str = PASSWORD) -> None:
    """Gives a user a password for SCRAM, or another one."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(name, info, password.encode())
    for done in admin.alter_user_scram_credentials([wanted]).values():
        done.result(10)


class SecuredKafka:
    """The broker; `bootstrap` is the owner's address, `scram`, `mtls` and `oauth` those of others."""

    def __init__(
        self, kafka: LocalKafka, ports: tuple[int, ...], folder: Path, certificates: Certificates
    ) -> None:
        self.kafka, self.folder, self.certificates = kafka, folder, certificates
        self.bootstrap = kafka.bootstrap
        self.scram, self.mtls, self.oauth = (f"{LOOPBACK}:{port}" for port in ports)
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    @property
    def log(self) -> str:
        """All that the broker has said."""
        files = [*self.kafka.data_dir.glob("broker.log*"), self.kafka.data_dir / "output.log"]
        return "".join(each.read_text("utf-8", "replace") for each in files)

    def add_user(self, name: str, password: str = PASSWORD) -> None:
        """Gives a user a password for SCRAM, or another one."""
        add_user(self.admin, name, password)

    def allow_everything(self, user: str) -> None:
        """Grants a user all rights."""
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        names = dict.fromkeys(kinds, "*") | {ResourceType.BROKER: "kafka-cluster"}
        acls = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for kind, name in names.items()
        ]
        for done in self.admin.create_acls(acls).values():
            done.result(10)


@contextmanager
def secured_kafka(folder: Path, issuer: Issuer) -> Iterator[SecuredKafka]:
    """Runs the broker."""
    ports = tuple(free_ports(3))
    certificates = Certificates(folder)
    store = certificates.issue("broker")
    added = dict(zip(("SCRAM:SASL_SSL", "MTLS:SSL", "OAUTH:SASL_SSL"), ports, strict=True))
    addresses = "".join(f",{name.partition(':')[0]}://{LOOPBACK}:{port}" for name, port in added.items())
    more = {
        "listeners": addresses,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "".join(f",{name}" for name in added),
    }
    oauth = "listener.name.oauth.oauthbearer.sasl"
    lines = [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={store}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.ca}",
        "listener.name.mtls.ssl.client.auth=required",
        "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN",
        f"listener.name.scram.scram-sha-512.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;",
        f"listener.name.scram.plain.sasl.jaas.config={_MODULES}.plain.PlainLoginModule required "
        f'user_shop="{PASSWORD}";',
        "listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER",
        f"listener.name.oauth.oauthbearer.connections.max.reauth.ms={_AGAIN_MS}",
        f"{oauth}.jaas.config={_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        f"{oauth}.server.callback.handler.class={_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{oauth}.oauthbearer.jwks.endpoint.url={issuer.address}",
        f"{oauth}.oauthbearer.expected.audience=kafka",
        f"{oauth}.oauthbearer.expected.issuer=tests",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    ]

    def secured(settings: NodeSettings, log_dir: Path) -> str:
        usual = server_properties(settings, log_dir).splitlines()
        found = [line + more.get(line.partition("=")[0], "") for line in usual]
        return "".join(f"{line}\n" for line in [*found, *lines])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_process, "server_properties", secured)
        # A broker fetches keys only from where it was told to on its command line.
        patch.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.address}")
        with LocalKafka() as kafka:
            made = SecuredKafka(kafka, ports, folder, certificates)
            made.add_user("shop")
            made.allow_everything("shop")
            yield made
