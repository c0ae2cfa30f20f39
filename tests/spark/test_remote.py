"""What a client of Spark Connect does by itself: settings for Kafka, its own files, errors of the server's process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from confluent_kafka import Uuid

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition, InvalidArgument, SchemaError
from spark.connection import Connection
from spark.job import Context
from spark.remote_cluster import _RemoteCluster, as_java_writes_it, client_settings
from spark.remote_files import _LocalFile
from tests.spark.needs import need_spark

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def test_a_topic_has_one_id_in_the_checkpoint_whichever_client_told_it() -> None:
    assert str(Uuid(-5, -1234567)) == "//////////v//////+0peQ"
    assert as_java_writes_it(str(Uuid(-5, -1234567))) == "__________v______-0peQ"


def test_settings_of_a_connection_go_to_librdkafka_and_no_others() -> None:
    told = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": rf'{JAAS} username="ann" password="a \"b\" \\ c";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "max.poll.records": "100",
        "linger.ms": "5",
    }
    assert client_settings(Connection("kafka:9092", told)) == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a "b" \\ c',
        "ssl.ca.location": "/ca.pem",
    }


def test_settings_that_librdkafka_doesn_t_know_are_named() -> None:
    kerberos = Connection(
        "kafka:9092", {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required"}
    )
    with pytest.raises(FailedPrecondition, match=r"config sasl\.jaas\.config: over Spark Connect"):
        client_settings(kerberos)
    with pytest.raises(FailedPrecondition, match=r"ssl\.truststore\.password"):
        _RemoteCluster(Connection("kafka:9092", {"ssl.truststore.password": "secret"}))


def test_a_cluster_that_doesn_t_answer_the_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.remote_cluster._PATIENCE", 0.2)
    asked = _RemoteCluster(Connection("127.0.0.1:1"))
    with pytest.raises(BrokerUnavailable, match="asked by this process, not by the Spark Connect server"):
        asked.topics()


def test_a_report_is_a_file_of_the_client_s_machine(tmp_path: Path) -> None:
    page = _LocalFile(f"{tmp_path}/report.html", "--report")
    page.write("one")
    page.write("two")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert Path(page.path).read_text() == "two"
    assert _LocalFile(f"file://{tmp_path}/report.html", "--report").path == page.path
    for path, said in (
        ("hdfs:///report.html", "the client writes it"),
        (str(tmp_path), "is a directory"),
        (f"{tmp_path}/none/report.html", "none isn't there"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            _LocalFile(path, "--report")


def test_an_error_of_the_server_s_process_is_one_of_ours_again() -> None:
    need_spark()
    from spark.streams import error_in

    text = 'in append\n    raise SchemaError(\nkafka_pubsub.errors.SchemaError: "x" has another type: begin anew\n\tat'
    found = error_in(text)
    assert isinstance(found, SchemaError)
    assert found.message == '"x" has another type: begin anew'
    assert error_in("Job aborted: kafka_pubsub isn't there") is None


def test_a_copy_of_a_context_for_the_server_reports_to_its_log_and_has_no_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The function of a batch carries it to a server that may have neither the command line nor its passwords."""
    context = Context(
        "sessions", Connection("kafka:9092", {}), lambda _: None, "sc://server", {"a": "b"}, 9100
    )
    copy = pickle.loads(pickle.dumps(context))
    copy.note("batch 1")
    assert (copy.name, copy.connection, copy.master, copy.conf, copy.metrics_port) == (
        "sessions",
        context.connection,
        None,
        {},
        None,
    )
    assert capsys.readouterr().err == "batch 1\n"
