"""A Spark session that can read our topics: the right jars for the installed Spark, and times in UTC.

Rules
1. A session that is active already is used as it is, whoever made it; what it lacks is told with the line that
   adds it.
2. Jars come through `spark.jars.packages`, so Spark fetches them from wherever the machine's Spark is told to.
   Two processes that fetch at once can damage the cache, so they wait for each other.
3. Executors get this package and the pure part of `kafka_pubsub` as a zip: nothing has to be installed on a
   node.
4. Dates are UTC: an archive's partitions must not depend on where a driver stands.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_pubsub import errors
from kafka_pubsub.errors import FailedPrecondition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OF_A_JOB", "check_kafka", "first_line", "jvm", "packages", "session"]

_SCALA = "2.13"
#: Delta Lake is numbered by Spark's minor version.
_DELTA = {"4.0": "4.0.0"}
#: What a job's session must have, whoever made it: dates in UTC; times as every reader of Parquet knows them, where
#: Spark's default is a form that others have given up; and files of some days written side by side, because otherwise
#: every batch is sorted by its date.
OF_A_JOB = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "24",
    # Kafka isn't among them, so that batches are read and written as streams are: no row becomes an object of Java, and
    # rows can be counted while they are written.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}
_PARTS = ("core", "errors.py", "model.py", "__init__.py", "config.py", "py.typed")


def packages(version: str, *, delta: bool = True) -> str:
    """The value of `spark.jars.packages` for this version of Spark; KAFKA_PUBSUB_SPARK_PACKAGES replaces it."""
    told = os.environ.get("KAFKA_PUBSUB_SPARK_PACKAGES")
    if told is not None:
        return told
    minor = ".".join(version.split(".")[:2])
    names = [f"org.apache.spark:{part}_{_SCALA}:{version}" for part in ("spark-sql-kafka-0-10", "spark-avro")]
    if delta:
        names.append(f"io.delta:delta-spark_{_SCALA}:{_DELTA.get(minor, minor + '.0')}")
    return ",".join(names)


def session(
    name: str = "kafka_pubsub",
    *,
    master: str | None = None,
    delta: bool = True,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The active session, else a new one; `master` None is what spark-submit says, else all local cores."""
    if importlib.util.find_spec("pyspark") is None:
        raise FailedPrecondition("pyspark isn't installed: pip install 'kafka-pubsub-orderly[spark]'")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        _check_java()
        with _one_at_a_time():
            active = _build(SparkSession.builder.appName(name), _settings(master, delta, conf or {}))
    check_kafka(active)
    _ship(active)
    return active


def _settings(master: str | None, delta: bool, conf: Mapping[str, str]) -> dict[str, str]:
    import pyspark

    wanted = packages(pyspark.__version__, delta=delta)
    # Empty: the jars are there already, by --jars or in Spark's own directory.
    settings = {"spark.jars.packages": wanted} if wanted else {}
    if delta:
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    settings.update(OF_A_JOB)
    # VACUUM lists a table's directories in as many tasks as this says, and Spark's 10,000 take a minute for any table.
    settings["spark.sql.sources.parallelPartitionDiscovery.parallelism"] = "200"
    # Bars that redraw themselves are unreadable in a log; jobs tell their progress line by line.
    settings["spark.ui.showConsoleProgress"] = "false"
    settings["spark.sql.streaming.stateStore.providerClass"] = (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
    if master is not None:
        settings["spark.master"] = master
    return {**settings, **conf}


def _build(builder: Any, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    made.sparkContext.setLogLevel(os.environ.get("KAFKA_PUBSUB_SPARK_LOG", "ERROR"))
    return made


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home) / "bin") if home else None) is None:
        raise FailedPrecondition(
            "no Java for Spark: install a JDK 17 or 21 (e.g. openjdk-17-jre-headless), or set JAVA_HOME; the JRE of "
            "the extra [local] runs Kafka but lacks what Spark needs"
        )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    lock = Path(tempfile.gettempdir()) / f"kafka_pubsub-spark-{os.getuid()}.lock"
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def jvm(spark: SparkSession) -> Any:
    """Spark's own Java, by py4j; Spark Connect has none."""
    found = getattr(spark, "_jvm", None)
    if found is None:
        raise FailedPrecondition(
            "this needs a classic Spark session: Spark Connect has no JVM beside the driver"
        )
    return found


def first_line(error: Exception) -> str:
    """What an error of Spark or Java says, without the plan or stack that follows."""
    cause = getattr(error, "java_exception", None)
    text = str(error if cause is None else cause.getMessage())
    return next((line for line in map(str.strip, text.splitlines()) if line), type(error).__name__)


def check_kafka(spark: SparkSession) -> None:
    """`FailedPrecondition` with the missing option if this session can't read Kafka."""
    loader = jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    except Exception as error:
        raise FailedPrecondition(
            "this Spark session can't read Kafka: start it with --packages "
            f"{packages(spark.version)} (spark-submit, pyspark), or stop it and let "
            "kafka_pubsub_spark.session() make one"
        ) from error


def _ship(spark: SparkSession) -> None:
    """Sends our Python along, once a session; a local master has it already."""
    context = spark.sparkContext
    if str(context.master).startswith("local") or spark.conf.get("spark.kafka_pubsub.shipped", "") == "yes":
        return
    # Executors that start later ask this driver for it, so it stays until the end.
    directory = Path(tempfile.mkdtemp(prefix="kafka_pubsub-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    context.addPyFile(str(bundle(directory / "kafka_pubsub_shipped.zip")))
    spark.conf.set("spark.kafka_pubsub.shipped", "yes")


def bundle(target: Path) -> Path:
    """A zip with this package under its present name, and what it imports of `kafka_pubsub`."""
    own, base = Path(__file__).resolve().parent, Path(errors.__file__).resolve().parent
    with zipfile.ZipFile(target, "w") as archive:
        for path in own.rglob("*.py"):
            archive.write(path, Path(__package__ or own.name) / path.relative_to(own))
        for part in _PARTS:
            for path in sorted((base / part).rglob("*.py")) if (base / part).is_dir() else [base / part]:
                archive.write(path, Path("kafka_pubsub") / path.relative_to(base))
    return target
