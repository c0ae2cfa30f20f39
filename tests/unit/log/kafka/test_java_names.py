"""Names of Kafka's Java clients become librdkafka's."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kafka_pubsub.log.kafka.config_file import read_config_file

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def written(folder: Path, text: str) -> Path:
    path = folder / "client.properties"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (
            f'sasl.jaas.config={SCRAM} required \\\n  username="ann" \\\n  password="s=e;c \\\\"r\\\\" et";',
            {"sasl.username": "ann", "sasl.password": 's=e;c "r" et'},
        ),
        (
            f"sasl.jaas.config={OAUTH} required clientId='me' clientSecret=you scope=\"a b\" extension_x=\"y\" ;",
            {
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "you",
                "sasl.oauthbearer.scope": "a b",
                "sasl.oauthbearer.extensions": "x=y",
            },
        ),
        (
            "sasl.oauthbearer.token.endpoint.url=https://login.example.com/token",
            {
                "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
        ("ssl.truststore.type=PEM\nssl.truststore.location=/ca", {"ssl.ca.location": "/ca"}),
        (
            "ssl.keystore.location=/me.pem\nssl.key.password=x",
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "x"},
        ),
        (
            "ssl.keystore.type=PKCS12\nssl.keystore.location=/me\nssl.keystore.password=x",
            {"ssl.keystore.location": "/me", "ssl.keystore.password": "x"},
        ),
        ("ssl.endpoint.identification.algorithm=", {"ssl.endpoint.identification.algorithm": "none"}),
        ("ssl.ca.location=/librdkafka/has/it", {"ssl.ca.location": "/librdkafka/has/it"}),
        ("bootstrap.servers=h:1", {"bootstrap.servers": "h:1"}),
    ],
)  # fmt: skip
def test_java_names_become_those_of_librdkafka(tmp_path: Path, text: str, settings: dict[str, str]) -> None:
    assert read_config_file(written(tmp_path, text)) == settings


@pytest.mark.parametrize("end", [" \\\n", "\\\n  ", " ", "\\n", "\\n\\\n"])
@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("ssl.truststore.certificates", "ssl.ca.pem"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        ("ssl.key.pem", "ssl.key.pem"),
    ],
)
def test_pem_in_a_value_gets_its_line_breaks_back(tmp_path: Path, name: str, here: str, end: str) -> None:
    pem = "".join(ssl.DER_cert_to_PEM_cert(bytes(range(size))) for size in (200, 144))
    path = written(tmp_path, f"{name}={pem.replace(chr(10), end).removesuffix(end)}\n")
    assert read_config_file(path) == {here: pem}


def test_pem_that_is_in_lines_or_no_pem_stays_as_it_is(tmp_path: Path) -> None:
    old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIB\n-----END RSA PRIVATE KEY-----\n"
    for text in (old, "/a/path"):
        path = written(tmp_path, f"ssl.keystore.key={text.replace(chr(10), chr(92) + 'n')}\n")
        assert read_config_file(path) == {"ssl.key.pem": text}
