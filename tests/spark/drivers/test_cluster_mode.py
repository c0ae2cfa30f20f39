"""spark-submit's `--deploy-mode cluster`: YARN and Kubernetes take our driver, a standalone cluster takes none.

There is no YARN and no Kubernetes here: spark-submit names its first command there, and fails when it looks for them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.spark.needs import SHORT_LIVED, need_spark

ROOT = Path(__file__).resolve().parents[3]
JOB = ["archive", "--topic", "orders"]


def submitted(directory: Path, master: str, *options: str, until: str) -> str:
    """spark-submit's output, up to a line."""
    from spark.base.spark_session import bundle
    from tests.spark.standalone import HOME

    bundle(directory / "kafka_pubsub.zip", driver=True)
    (directory / "submit.py").write_text((ROOT / "spark" / "submit.py").read_text())
    (directory / "hadoop").mkdir()
    command = [
        str(HOME / "bin" / "spark-submit"),
        "--verbose",
        "--master",
        master,
        "--deploy-mode",
        "cluster",
    ]
    driver = subprocess.Popen(
        [*command, *options, "--py-files", "kafka_pubsub.zip", "submit.py", *JOB],
        cwd=directory,
        env={
            **os.environ,
            "HADOOP_CONF_DIR": str(directory / "hadoop"),
            "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    with driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            said.append(line.rstrip())
            if until in line:
                driver.kill()
                break
    return "\n".join(said)


def test_yarn_is_told_to_start_the_driver_from_the_zip(tmp_path: Path) -> None:
    need_spark()
    said = submitted(tmp_path, "yarn", until="Classpath elements")
    assert "org.apache.spark.deploy.yarn.YarnClusterApplication" in said
    assert (
        f"--primary-py-file\nfile:{tmp_path}/submit.py\n--class\norg.apache.spark.deploy.PythonRunner" in said
    )
    assert "--arg\narchive\n--arg\n--topic\n--arg\norders" in said
    assert f"(spark.yarn.dist.pyFiles,file://{tmp_path}/kafka_pubsub.zip)" in said


def test_kubernetes_is_told_to_start_the_driver_from_the_zip(tmp_path: Path) -> None:
    need_spark()
    options = ["--conf", "spark.kubernetes.container.image=image"]
    options += ["--conf", f"spark.kubernetes.file.upload.path=file://{tmp_path}/staging"]
    said = submitted(tmp_path, "k8s://https://127.0.0.1:1", *options, until="Classpath elements")
    assert "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication" in said
    assert f"--primary-py-file\nfile:{tmp_path}/submit.py" in said
    assert "--main-class\norg.apache.spark.deploy.PythonRunner" in said
    assert "--arg\narchive\n--arg\n--topic\n--arg\norders" in said
    assert f"(spark.submit.pyFiles,file://{tmp_path}/kafka_pubsub.zip)" in said


def test_a_standalone_cluster_takes_no_driver_in_python(tmp_path: Path) -> None:
    need_spark()
    said = submitted(tmp_path, "spark://127.0.0.1:1", until="currently not supported")
    assert (
        "Cluster deploy mode is currently not supported for python applications on standalone clusters"
        in said
    )
