"""`kafka_jars.py VERSION FOLDER`: puts the jars of another Kafka into FOLDER/libs, so that KAFKA_HOME can name it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import jgo


def main(version: str, folder: Path) -> None:
    """Fetches the jars."""
    libs = folder / "libs"
    libs.mkdir(parents=True, exist_ok=True)
    environment = jgo.build(f"org.apache.kafka:kafka_2.13:{version}", cache_dir=str(folder / "cache"))
    for jar in environment.all_jars:
        shutil.copy(jar, libs)
    print(f"Kafka {version}: {len(list(libs.iterdir()))} jars")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
