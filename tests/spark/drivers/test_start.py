"""The start of Spark: quiet where it succeeds, and where a jar is missing a single line says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.drivers.group import ROOT
from tests.spark.needs import need_spark

PROGRAM = """
import sys
from kafka_pubsub.errors import PubSubError
from spark import session
conf = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
try:
    spark = session(master="local[1]", conf={**conf, **dict(each.split("=", 1) for each in sys.argv[1:])})
except PubSubError as error:
    print("refused:", error.message)
else:
    spark._jvm.java.lang.System.err.println("said later")
    spark._jvm.java.lang.System.err.flush()
    print(spark.range(3).count())
    spark.stop()
"""
#: A repository that has nothing.
NOTHING = """<ivysettings><settings defaultResolver="none"/><resolvers>
<ibiblio name="none" m2compatible="true" root="file:///nowhere"/></resolvers></ivysettings>"""


def started(*conf: str, **environment: str) -> subprocess.CompletedProcess[str]:
    need_spark()
    plain = {name: value for name, value in os.environ.items() if name != "KAFKA_PUBSUB_SPARK_LOG"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *conf],
        cwd=ROOT,
        env={**plain, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_spark_prints_at_its_start_is_kept_back_and_later_lines_come() -> None:
    ran = started()
    assert ran.stdout.split() == ["3"], ran.stderr
    assert "said later" in ran.stderr
    before = ran.stderr.partition("said later")[0].splitlines()
    assert [line for line in before if "org.apache" in line or line.startswith(("::", "\t"))] == []
    assert len(before) < 3, before
    assert ":: resolving dependencies" in started(KAFKA_PUBSUB_SPARK_LOG="ERROR").stderr


def test_a_jar_that_can_t_be_had_is_named_with_the_remedy(tmp_path: Path) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(NOTHING)
    ran = started(
        f"spark.jars.ivySettings={settings}",
        f"spark.jars.ivy={tmp_path}/ivy",
        KAFKA_PUBSUB_SPARK_PACKAGES="org.example:nothing_2.13:1.0",
    )
    assert "refused: Spark can't fetch its jars (org.example#nothing_2.13;1.0)" in ran.stdout
    for remedy in ("spark.jars.repositories=URL", "KAFKA_PUBSUB_SPARK_PACKAGES"):
        assert remedy in ran.stdout


def test_where_the_session_can_t_be_made_what_spark_has_printed_is_shown() -> None:
    ran = started("spark.shuffle.manager=org.example.Nothing")
    assert ran.returncode == 1
    assert "ClassNotFoundException: org.example.Nothing" in ran.stderr
    assert ":: resolving dependencies" in ran.stderr
