"""Makes Spark sessions that can read topics: with the jars for the installed Spark, and times in UTC.

Rules
1. A session that is active already is used as it is. If it lacks a setting, the error shows the option that adds it.
2. Jars come through `spark.jars.packages`, so Spark fetches them from the repositories that the machine's Spark is
   configured for. Two processes that fetch at once can damage the cache, so they wait for each other.
3. Executors get this package and `kafka_pubsub` as a zip: nothing must be installed on a node.
4. Dates are UTC: an archive's partitions must not depend on the time zone of a driver.
5. A session of Spark Connect has no JVM in this process. It reads and writes; what needs the JVM, every job among it,
   raises an error before it does anything.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from kafka_pubsub import errors
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.sealed import schema_folder

from .launch import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "INSTALLED",
    "OF_A_JOB",
    "bundle",
    "cause_line",
    "cause_of",
    "check_delta",
    "check_kafka",
    "connect_options",
    "first_line",
    "is_connect",
    "is_of_spark",
    "is_remote",
    "jvm",
    "packages",
    "session",
]

#: This package's name where it is installed, and in the zip for drivers.
INSTALLED = "kafka_pubsub_spark"
#: The module by which Spark finds the format of `source.py`; it lies at the top where this package is installed.
_FOUND_BY_SPARK = "pyspark_kafka_pubsub.py"
_SCALA = "2.13"
_REMOTE = "sc://"
#: The version of Delta Lake for each minor version of Spark.
_DELTA = {"4.0": "4.0.0", "4.1": "4.1.0"}
_DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
#: Settings that a job's session must have, also one that you made: dates in UTC; times in the form that every reader
#: of Parquet knows (Spark's default is an older one); and files of several days open at once, because otherwise Spark
#: sorts every batch by its date.
OF_A_JOB = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "24",
    # Kafka isn't in this list, so that batches are read and written as streams are: no row becomes a Java object, and
    # rows can be counted while they are written.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # OPTIMIZE ... ZORDER BY sorts rows within files, too, so that parts of a file are skipped.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
    "spark.databricks.io.skipping.mdc.addNoise": "false",
}
#: Settings that a user may replace. Into how many tasks small work is cut: Delta reads a table's log after each batch,
#: and its default of 50 tasks takes a second. For VACUUM, Spark's default of 10,000 tasks takes a minute for any table.
#: And the store for the state of streams: Spark's default store can't hold the state and the timers of `sessions`.
_PREFERRED = {
    "spark.databricks.delta.snapshotPartitions": "4",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "200",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
#: The ids of the applications whose executors have got this package.
_SHIPPED: set[str] = set()


def packages(version: str, *, delta: bool = True) -> str:
    """Returns `spark.jars.packages` for this version of Spark; KAFKA_PUBSUB_SPARK_PACKAGES replaces it."""
    told = os.environ.get("KAFKA_PUBSUB_SPARK_PACKAGES")
    if told is not None:
        return told
    minor = ".".join(version.split(".")[:2])
    names = [f"org.apache.spark:{part}_{_SCALA}:{version}" for part in ("spark-sql-kafka-0-10", "spark-avro")]
    if delta:
        names.append(f"io.delta:delta-spark_{_SCALA}:{_DELTA.get(minor, minor + '.0')}")
    return ",".join(names)


def connect_options(version: str, zipped: Path | None) -> list[str]:
    """Returns the options to start a Spark Connect server of this version with.

    `zipped` is the zip that `bundle` made; with None the options name no zip.
    """
    wanted, settings = packages(version), dict(_DELTA_CONF)
    if zipped is not None:
        settings["spark.executorEnv.PYTHONPATH"] = str(zipped)
    words = ["--packages", wanted] if wanted else []
    return [*words, *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}"))]


def session(
    name: str = "kafka_pubsub",
    *,
    master: str | None = None,
    delta: bool = True,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Returns the active session, or makes a new one if there is none.

    `name` is the application's name (default "kafka_pubsub"). `master` is where Spark runs (default: what spark-submit
    says, else all local cores). A `master` that begins with sc:// is a Spark Connect server: it must have been started
    with the packages that `kafka-pubsub spark submit-args` prints. `delta` says whether to add Delta Lake (default:
    True). `conf` are more settings (default: none); a Spark Connect server takes those that can change while it runs.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise FailedPrecondition("pyspark isn't installed: pip install 'kafka-pubsub-orderly[spark]'")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and is_connect(master):
        return _connected(str(master), conf or {})
    if active is None:
        _check_java()
        with _one_at_a_time():
            active = start(name, _settings(master, delta, conf or {}))
        if not is_remote(active):
            active.sparkContext.setLogLevel(os.environ.get("KAFKA_PUBSUB_SPARK_LOG", "ERROR"))
    check_kafka(active)
    if not is_remote(active):
        _ship(active)
    return active


def is_connect(master: str | None) -> bool:
    """Returns whether this is the address of a Spark Connect server."""
    return (master or "").startswith(_REMOTE)


def is_remote(spark: SparkSession) -> bool:
    """Returns whether this is a session of Spark Connect, whose Spark is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _connected(url: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    where = urlsplit(url)
    try:
        # Spark's own client would try for ten minutes to reach a server that doesn't run.
        socket.create_connection((where.hostname or "", where.port or 15002), 5).close()
    except (OSError, ValueError) as error:
        raise FailedPrecondition(f"no Spark Connect server answers at {url}: {error}") from error
    try:
        made: SparkSession = SparkSession.builder.remote(url).create()
        for name, value in {**OF_A_JOB, **_PREFERRED, **conf}.items():
            made.conf.set(name, value)
    except ImportError as error:
        raise FailedPrecondition(
            f"{url}: a part of Spark Connect is missing ({error}): pip install 'kafka-pubsub-orderly[connect]'"
        ) from error
    except Exception as error:
        raise FailedPrecondition(f"{url} can't be used: {first_line(error)}") from error
    check_kafka(made)
    return made


def _settings(master: str | None, delta: bool, conf: Mapping[str, str]) -> dict[str, str]:
    import pyspark

    wanted = packages(pyspark.__version__, delta=delta)
    # If the variable is empty, the jars are there already: by --jars or in Spark's own directory.
    settings = {"spark.jars.packages": wanted} if wanted else {}
    # With these settings but without Delta's jars Spark couldn't resolve any name.
    if delta and (not wanted or "io.delta:" in wanted):
        settings.update(_DELTA_CONF)
    settings.update({**OF_A_JOB, **_PREFERRED})
    # Progress bars that redraw themselves are unreadable in a log; jobs print their progress line by line.
    settings["spark.ui.showConsoleProgress"] = "false"
    if master is not None:
        settings["spark.master"] = master
    return {**settings, **conf}


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
    """Returns Spark's JVM, by py4j; `FailedPrecondition` for a session of Spark Connect, which has none."""
    if is_remote(spark):
        raise FailedPrecondition(
            "this can't be done over Spark Connect, because it needs Spark's JVM in its own process: run it with "
            "spark-submit or a session that isn't remote"
        )
    return spark._jvm


def first_line(error: Exception) -> str:
    """Returns the first line of an error of Spark or Java, without the plan or stack that follows."""
    cause = getattr(error, "java_exception", None)
    text = str(error if cause is None else cause.getMessage())
    return next((line for line in map(str.strip, text.splitlines()) if line), type(error).__name__)


def is_of_spark(error: BaseException) -> bool:
    """Returns whether this is an error of Spark or of the Java below it."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def cause_of(error: Exception) -> Exception:
    """Returns the innermost cause with a text of an error of Spark: one of a query only says that the query ended."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        inner = getattr(error, "_cause", None)
        return error if inner is None else cause_of(inner)
    from pyspark.errors.exceptions.captured import convert_exception

    while (cause := java.getCause()) is not None and cause.getMessage():
        java = cause
    found: Exception = convert_exception(java)
    return found


def cause_line(error: Exception) -> str:
    """Returns the first line of an error's cause."""
    return first_line(cause_of(error))


def check_kafka(spark: SparkSession) -> None:
    """Raises `FailedPrecondition` with the missing option if this session can't read Kafka."""
    nowhere = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "none"}
    try:
        # Spark only loads the source for this; it doesn't connect to Kafka.
        _ = spark.read.format("kafka").options(**nowhere).load().schema
    except Exception as error:
        if not _is_no_source(error):
            raise
        remedy = (
            "start the Spark Connect server"
            if is_remote(spark)
            else "let kafka_pubsub_spark.session() make one, or start it"
        )
        raise FailedPrecondition(
            f"this Spark session can't read Kafka, because a package is missing: {remedy} with --packages "
            f"{packages(spark.version)}"
        ) from error


def check_delta(spark: SparkSession) -> None:
    """Raises `FailedPrecondition` with the missing options if this session can't use Delta tables."""
    try:
        # If Delta is there, this fails with another error, because there is no table.
        _ = spark.read.format("delta").load("/").schema
    except Exception as error:
        if not (_is_no_source(error) or "DELTA_CONFIGURE_SPARK_SESSION" in str(error)):
            return
        options = " ".join(f"--conf {name}={value}" for name, value in _DELTA_CONF.items())
        raise FailedPrecondition(
            f"this Spark session has no Delta Lake, which tables need: start it with --packages "
            f"{packages(spark.version)} {options}, or let kafka_pubsub_spark.session() make one"
        ) from error


def _is_no_source(error: Exception) -> bool:
    said = str(error)
    return "Failed to find data source" in said or "DATA_SOURCE_NOT_FOUND" in said


def _ship(spark: SparkSession) -> None:
    """Sends this package to the executors, once for each application; a local master has it already."""
    context = spark.sparkContext
    # All sessions of an application share one list of files, which refuses a name that it has already.
    if str(context.master).startswith("local") or context.applicationId in _SHIPPED:
        return
    # A zip that spark-submit got by --py-files is in the list already.
    own = _own_zip()
    if own is None or Path(own).name not in (context._python_includes or ()):
        context.addPyFile(own or _new_zip())
    _SHIPPED.add(context.applicationId)


def _own_zip() -> str | None:
    """Returns the path of the zip that this package was imported from; None if it wasn't imported from a zip."""
    loader = getattr(sys.modules[__package__], "__loader__", None)
    return getattr(loader, "archive", None)


def _new_zip() -> str:
    # Executors that start later fetch the zip from this driver, so it stays until the process ends.
    directory = Path(tempfile.mkdtemp(prefix="kafka_pubsub-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return str(bundle(directory / "kafka_pubsub_shipped.zip"))


def bundle(target: Path, *, driver: bool = False) -> Path:
    """Writes a zip with this package under its present name, `kafka_pubsub` and click.

    It holds no librdkafka: what needs it (`source.py`) needs `confluent_kafka` installed where it runs.
    `driver=True` is for a driver where only pyspark is installed: the package is then in the zip under the name that
    it has when it is installed, and submit.py finds it by that name.
    """
    own, base = Path(__file__).resolve().parents[1], Path(errors.__file__).resolve().parent
    name = INSTALLED if driver else (__package__ or own.name).partition(".")[0]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(directory: Path, name: str) -> None:
            for path in sorted(each for kind in ("*.py", "*.avsc", "*.j2") for each in directory.rglob(kind)):
                archive.write(path, Path(name) / path.relative_to(directory))

        add(own, name)
        add(base, "kafka_pubsub")
        schemas = Path(str(schema_folder()))
        if not schemas.is_relative_to(base):  # in a clone they lie beside the package
            add(schemas, "kafka_pubsub/schemas")
        add(Path(click.__file__).resolve().parent, "click")
        # Where this package is installed, it lies beside it.
        found = own.parent / _FOUND_BY_SPARK
        archive.write(found if found.exists() else own / _FOUND_BY_SPARK, _FOUND_BY_SPARK)
    return target
