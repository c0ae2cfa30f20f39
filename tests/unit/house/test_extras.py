"""The README's command installs `.[test]`: pytest must be able to collect every test without the other extras."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.unit.house.repository import ROOT

#: The only folder whose code uses other extras; a test there asks for them by `need_spark` and then imports.
FOLDER = "tests/spark"
COLLECT = f"""
import sys
sys.modules.update(dict.fromkeys(("pyspark", "py4j", "pyarrow", "pandas", "grpc")))
import pytest
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "-m", "slow or not slow", "{FOLDER}"]))
"""


def test_the_tests_of_spark_are_collected_without_pyspark() -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "tests/spark/test_report.py: " in done.stdout
