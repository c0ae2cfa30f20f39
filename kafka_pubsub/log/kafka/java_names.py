"""Gives settings of Kafka's Java clients the names and values that librdkafka has for them.

Rules
1. A name that librdkafka has too keeps its value, unless the two mean different values by it.
2. What has no counterpart raises `ValueError`, which says what to write instead. It quotes no value.
3. A PEM key store is one file with the key and its certificates: librdkafka takes it as both of its files. PEM in a
   value gets its line breaks back, without which librdkafka doesn't read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kafka_pubsub.log.kafka.java_properties import parse_login

__all__ = ["BEHIND", "translate"]

#: Settings of librdkafka's.
Settings = dict[str, str]

#: Java's name -> librdkafka's, with the same values.
_SAME: Final[Mapping[str, str]] = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

#: Names of settings that hold PEM, Java's and librdkafka's -> librdkafka's.
_PEMS: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.ca.pem": "ssl.ca.pem",
    "ssl.certificate.pem": "ssl.certificate.pem",
    "ssl.key.pem": "ssl.key.pem",
}
_BLOCK: Final = re.compile(r"\s*(-----BEGIN ([A-Z0-9 ]+)-----)([A-Za-z0-9+/=\s]*)(-----END \2-----)\s*")
#: Characters in a line of PEM.
_WIDTH: Final = 64

_PASSWORD_LOGINS: Final = frozenset({"PlainLoginModule", "ScramLoginModule"})
_OAUTH_OPTIONS: Final[Mapping[str, str]] = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXTENSION: Final = "extension_"
_MSK: Final = (
    "is AWS MSK's, for Java: take sasl.mechanism=OAUTHBEARER and name a function of Python that gives tokens: "
    "`oauth_cb=MODULE:FUNCTION`; docs/connecting.md shows how"
)
#: Settings of Java clients that say where a store's format or password is; their neighbours use them.
BEHIND: Final = frozenset({"ssl.truststore.type", "ssl.keystore.type"})


def translate(name: str, value: str, file: Mapping[str, str]) -> Settings:
    """Returns librdkafka's settings for one of Java's; `file` has all of them. An unknown name stays as it is."""
    if name in BEHIND:
        return {}
    if name in _SAME:
        return {_SAME[name]: value}
    if name in _PEMS:
        return {_PEMS[name]: _with_line_breaks(value)}
    special = _SPECIAL.get(name)
    return {name: value} if special is None else special(value, file)


def _with_line_breaks(pem: str) -> str:
    r"""Returns PEM in lines of its own: Java needs none, and a value that goes on behind `\` has lost them."""

    def lines(block: re.Match[str]) -> str:
        body = "".join(block[3].split())
        parts = [body[place : place + _WIDTH] for place in range(0, len(body), _WIDTH)]
        return "\n".join((block[1], *parts, block[4], ""))

    return _BLOCK.sub(lines, pem)


def _login(value: str, file: Mapping[str, str]) -> Settings:
    login = parse_login(value)
    if login.module in _PASSWORD_LOGINS:
        return _options(login.options, {"username": "sasl.username", "password": "sasl.password"})
    if login.module == "OAuthBearerLoginModule":
        extensions = {name: value for name, value in login.options.items() if name.startswith(_EXTENSION)}
        found = _options({k: v for k, v in login.options.items() if k not in extensions}, _OAUTH_OPTIONS)
        if extensions:
            pairs = (f"{name.removeprefix(_EXTENSION)}={each}" for name, each in extensions.items())
            found["sasl.oauthbearer.extensions"] = ",".join(pairs)
        return found
    if login.module == "IAMLoginModule":
        raise ValueError(f"the login module {login.module} {_MSK}")
    raise ValueError(
        f"the login module {login.module} isn't known here: take PlainLoginModule, ScramLoginModule or "
        "OAuthBearerLoginModule"
    )


def _options(given: Mapping[str, str], known: Mapping[str, str]) -> Settings:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(f"the option {unknown[0]!r} of the login isn't known here: take {', '.join(known)}")
    return {known[name]: value for name, value in given.items()}


def _handler(value: str, file: Mapping[str, str]) -> Settings:
    name = value.rpartition(".")[2]
    if name == "OAuthBearerLoginCallbackHandler":
        return {"sasl.oauthbearer.method": "oidc"}
    if name in {"IAMClientCallbackHandler", "IAMOAuthBearerLoginCallbackHandler"}:
        raise ValueError(f"the class {name} {_MSK}")
    raise ValueError(
        f"the class {name} is Java's: name a function of Python that gives tokens: `oauth_cb=MODULE:FUNCTION`"
    )


def _token_endpoint(value: str, file: Mapping[str, str]) -> Settings:
    return {"sasl.oauthbearer.token.endpoint.url": value, "sasl.oauthbearer.method": "oidc"}


def _mechanism(value: str, file: Mapping[str, str]) -> Settings:
    if value == "AWS_MSK_IAM":
        raise ValueError(f"the mechanism {value} {_MSK}")
    return {"sasl.mechanism": value}


def _trust_store(value: str, file: Mapping[str, str]) -> Settings:
    if _is_pem(value, file.get("ssl.truststore.type")):
        return {"ssl.ca.location": value}
    raise ValueError(
        "librdkafka reads certificates as PEM: export them (keytool -exportcert -rfc -alias NAME -keystore STORE) and "
        "give the file with ssl.truststore.type=PEM"
    )


def _no_trust_password(value: str, file: Mapping[str, str]) -> Settings:
    raise ValueError("a trust store in PEM has no password: leave the line out")


def _key_store(value: str, file: Mapping[str, str]) -> Settings:
    kind = file.get("ssl.keystore.type")
    if _is_pem(value, kind):
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    if (kind or "").upper() == "PKCS12" or value.lower().endswith((".p12", ".pfx")):
        return {"ssl.keystore.location": value}
    raise ValueError(
        "librdkafka reads key stores as PEM or PKCS12, not JKS: convert yours (keytool -importkeystore -srckeystore "
        "STORE -destkeystore STORE.p12 -deststoretype PKCS12) and give it with ssl.keystore.type=PKCS12"
    )


def _is_pem(location: str, kind: str | None) -> bool:
    if kind is not None:
        return kind.upper() == "PEM"
    return location.lower().endswith((".pem", ".crt", ".cert", ".cer"))


def _identification(value: str, file: Mapping[str, str]) -> Settings:
    # Java switches the check off with an empty value.
    return {"ssl.endpoint.identification.algorithm": value or "none"}


def _protocol(value: str, file: Mapping[str, str]) -> Settings:
    raise ValueError("librdkafka chooses the version of TLS by itself: leave the line out")


def _ciphers(value: str, file: Mapping[str, str]) -> Settings:
    if "," in value or value.startswith("TLS_"):
        raise ValueError("librdkafka takes OpenSSL's names of ciphers, with colons between: write those")
    return {"ssl.cipher.suites": value}


_SPECIAL: Final[Mapping[str, Callable[[str, Mapping[str, str]], Settings]]] = {
    "sasl.jaas.config": _login,
    "sasl.login.callback.handler.class": _handler,
    "sasl.client.callback.handler.class": _handler,
    "sasl.oauthbearer.token.endpoint.url": _token_endpoint,
    "sasl.mechanism": _mechanism,
    "ssl.truststore.location": _trust_store,
    "ssl.truststore.password": _no_trust_password,
    "ssl.keystore.location": _key_store,
    "ssl.endpoint.identification.algorithm": _identification,
    "ssl.protocol": _protocol,
    "ssl.enabled.protocols": _protocol,
    "ssl.cipher.suites": _ciphers,
}
