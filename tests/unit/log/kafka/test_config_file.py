"""Config files in the properties format of Kafka's own tools."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kafka_pubsub.config import Settings
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka.config_file import join_config, read_config_file, read_java_file
from tests.unit.log.kafka.test_java_names import SCRAM, written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.b=1", "line 1, a.b: neither librdkafka nor this package knows it"),
        ("\ngroup.id=x", "line 2, group.id: can't be set: kafka_pubsub sets it from the subscription's name"),
        ("error_cb=x", "callbacks are taken by kafka_pubsub"),
        ("ssl.truststore.location=/x.jks", "keytool -exportcert"),
        ("ssl.truststore.password=secret", "has no password: leave the line out"),
        ("ssl.keystore.location=/x.jks", "-deststoretype PKCS12"),
        ('sasl.jaas.config=x.KerberosModule required a="secret";', "login module KerberosModule isn't known"),
        (f'sasl.jaas.config={SCRAM} required password="secret"', "after the option 'password'"),
        (f'sasl.jaas.config={SCRAM} required username="a" pass="secret";', "the option 'pass' of the login"),
        ('sasl.jaas.config=password="secret"', "write MODULE required"),
        ("sasl.mechanism=AWS_MSK_IAM", "oauth_cb"),
        ("sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler", "oauth_cb"),
        ("sasl.password=${directory:/nowhere:secret-name}", "can't read /nowhere/secret-name: No such file"),
        ("sasl.password=${file:/nowhere:name}", "can't read /nowhere: No such file"),
        ("sasl.password=${env:KAFKA_PUBSUB_NOT_THERE}", "no variable KAFKA_PUBSUB_NOT_THERE"),
        ("sasl.password=${file:x}", "write ${file:PATH:NAME}"),
        ("config.providers=v\nconfig.providers.v.class=a.Vault", "line 2, config.providers.v.class: only Kafka's own"),
        ("sasl.password=s\u00e9cret", "line 1 has a character beyond ASCII"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_named_with_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidArgument) as caught:
        read_config_file(path)
    assert f"config file {path}: " in caught.value.message
    assert said in caught.value.message
    assert '"secret"' not in caught.value.message
    assert "s\u00e9cret" not in caught.value.message


def test_all_wrong_lines_are_named_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "a=1\nkey.serializer=x\nacks=1\n")
    with pytest.raises(InvalidArgument, match=r"line 1, a: .*line 2, key.serializer: .*line 3, acks: "):
        read_config_file(path)


def test_what_says_the_same_as_our_rules_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = written(
        tmp_path,
        "acks=-1\nenable.idempotence=True\nisolation.level=read_committed\nenable.auto.commit=false\n"
        "allow.auto.create.topics=false\nclient.id=shop\nsasl.username=me\n",
    )
    assert read_config_file(path) == {"sasl.username": "me"}
    assert [each.getMessage() for each in caplog.records] == [
        "line 6 of the config file, client.id, is left out: kafka_pubsub sets it"
    ]


@pytest.mark.parametrize(
    "text", ["acks=1", "enable.idempotence=false", "isolation.level=read_uncommitted", "group.id=x"]
)
def test_what_breaks_a_promise_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match="can't be set"):
        read_config_file(written(tmp_path, text))


def test_passwords_come_from_files_and_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_PASSWORD", "third")
    (tmp_path / "word").write_text("first\n")
    (tmp_path / "more.properties").write_text("a=b\nname=second\n")
    path = written(
        tmp_path,
        "config.providers=mine,env\n"
        "config.providers.mine.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
        f"sasl.password=${{mine:{tmp_path}:word}}\n"
        f"sasl.username=${{file:{tmp_path}/more.properties:name}}\n"
        "ssl.key.password=${env:KEY_PASSWORD}\n"
        "sasl.oauthbearer.scope=${other:stays:so}\n",
    )
    settings = {
        "sasl.password": "first",
        "sasl.username": "second",
        "ssl.key.password": "third",
        "sasl.oauthbearer.scope": "${other:stays:so}",
    }
    assert read_config_file(path) == settings
    assert read_java_file(path) == settings


def test_java_clients_get_a_file_as_it_stands(tmp_path: Path) -> None:
    path = written(tmp_path, f'sasl.jaas.config={SCRAM} required username="a";\nssl.truststore.type=PEM\n')
    assert read_java_file(path) == {
        "sasl.jaas.config": f'{SCRAM} required username="a";',
        "ssl.truststore.type": "PEM",
    }


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"config file {tmp_path}/no: No such file"):
        read_config_file(tmp_path / "no")
    with pytest.raises(InvalidArgument, match="Is a directory"):
        read_config_file(tmp_path)


def test_a_setting_wins_over_a_file_and_an_argument_over_the_environment(tmp_path: Path) -> None:
    path = written(
        tmp_path, "bootstrap.servers=file:1\nsasl.username=file\nsasl.password=file\nssl.ca.location=file\n"
    )
    none = Settings(config={})
    read = {
        "bootstrap.servers": "file:1",
        "sasl.username": "file",
        "sasl.password": "file",
        "ssl.ca.location": "file",
    }
    assert join_config(none, None, {}, path) == read
    there = Settings(config={"sasl.username": "variable", "sasl.password": "variable"}, config_file=str(path))
    assert join_config(there, None, {"sasl.password": "argument"}, None) == {
        **read,
        "sasl.username": "variable",
        "sasl.password": "argument",
    }
    assert join_config(there, None, {"sasl.password": "argument"}, path) == {
        **read,
        "sasl.password": "argument",
    }


def test_the_address_of_a_file_counts_where_no_other_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "bootstrap.servers=file:1\n")
    named = Settings(bootstrap="variable:2", config_file=str(path))
    assert join_config(named, None, {}, None) == {}
    assert join_config(named, None, {}, path) == {"bootstrap.servers": "file:1"}
    assert join_config(named, "argument:3", {}, path) == {}
    single = Settings(config={"bootstrap.servers": "variable:4"})
    assert join_config(single, "argument:3", {}, path) == {}
