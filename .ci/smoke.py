"""Installs what a release publishes into clean environments, and uses it there: `python .ci/smoke.py dist`.

1. The wheel is tried with each Python that is here and that a classifier of the project names. The source archive is
   tried with this one, and makes a wheel of the same files.
2. An environment has the base only: the command, a message through the Kafka in memory, the schemas. With `--demo` one
   of them gets the extra `local`, and a real broker.
3. pip is the machine's, and finds packages where the machine says.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import json, sys
from importlib.metadata import version
from importlib.resources import files

from kafka_pubsub import PubSub

place = files("kafka_pubsub")
assert str(place).startswith(sys.prefix), f"{place} isn't what was installed"
schemas = place / "schemas"
found = sorted(each.name for each in schemas.iterdir() if each.is_dir())
for name in found:
    json.loads((schemas / name / "v1.avsc").read_text("utf-8"))
assert found, "no schemas"
with PubSub.in_memory() as ps:
    ps.create_topic("orders")
    ps.create_subscription("billing", topic="orders")
    ps.topic("orders").publish(b"hello", ordering_key="ada").result(timeout=30)
    (message,) = ps.subscription("billing").receive(max_messages=1, timeout=30)
    assert (message.data, message.ordering_key) == (b"hello", "ada")
    message.ack()
print(f"Python {sys.version.split()[0]}: {version('kafka-pubsub-orderly')}, {len(found)} schemas, a message")
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries the files of a folder; returns the exit code."""
    options = _options(arguments)
    wheels, archives = sorted(options.folder.glob("*.whl")), sorted(options.folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        print(
            f"{options.folder}: one wheel and one source archive are tried, and there are {len(wheels)} and "
            f"{len(archives)}: empty the folder, and build them with `hatchling build`"
        )
        return 2
    pythons = options.python or supported_pythons()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for number, python in enumerate(pythons):
            _try(wheels[0], python, folder / str(number))
        _compare(wheels[0], archives[0], folder)
        _try(archives[0], sys.executable, folder / "source")
        if options.demo:
            _demo(wheels[0], folder / "0")
    print(f"{wheels[0].name} works with {len(pythons)} Pythons, {archives[0].name} with this one.")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Install what a release publishes, and use it.")
    parser.add_argument("folder", type=Path, help="where the wheel and the source archive lie")
    parser.add_argument("--python", action="append", default=[], help="instead of all Pythons that are here")
    parser.add_argument("--demo", action="store_true", help="run `kafka-pubsub demo` on a real broker, too")
    return parser.parse_args(arguments)


def supported_pythons() -> list[str]:
    """Returns a Python of each minor version, of those on the path and those of pyenv, this one first."""
    wanted = _named_pythons()
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    folders += sorted(pyenv.glob("versions/*/bin"))
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for folder in folders:
        for python in sorted(folder.glob("python3.*")):
            minor = python.name.removeprefix("python")
            if minor in wanted and minor not in found and _runs(python):
                found[minor] = str(python)
    return list(found.values())


def _named_pythons() -> set[str]:
    # `requires-python` has no upper bound, and a newer Python may lack wheels of what we need.
    told = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each)
        for each in _project()["classifiers"]
    )
    return {each[1] for each in told if each}


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def _runs(python: Path) -> bool:
    # A shim of pyenv is there and doesn't run; a Python without venv is of no use.
    done = subprocess.run([str(python), "-c", "import ensurepip, venv"], capture_output=True, check=False)
    return done.returncode == 0


def _try(file: Path, python: str, folder: Path) -> None:
    _run(python, "-m", "venv", str(folder))
    own = str(folder / "bin" / "python")
    _run(own, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(file.resolve()))
    _run(own, "-m", "pip", "check", "--disable-pip-version-check", quiet=True)
    said = _run(str(folder / "bin" / "kafka-pubsub"), "--version", quiet=True)
    version = file.name.removesuffix(".tar.gz").split("-")[1]
    if version not in said.split():
        raise SystemExit(f"{file.name}: `kafka-pubsub --version` says {said.strip()!r}, and not {version}")
    # Isolated, and away from the checkout: nothing but the environment may be imported.
    _run(own, "-I", "-c", PROGRAM)


def _compare(wheel: Path, archive: Path, folder: Path) -> None:
    """Raises if the wheel that the archive makes holds other files than the wheel that is published."""
    made = folder / "made"
    command = ["-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", str(made)]
    _run(str(folder / "0" / "bin" / "python"), *command, str(archive.resolve()))
    (other,) = made.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(other) as two:
        files = [{each.filename: each.CRC for each in archive.infolist()} for archive in (one, two)]
    different = sorted({name for name, _ in files[0].items() ^ files[1].items()})
    if different:
        raise SystemExit(f"{archive.name} makes another wheel: {', '.join(different[:10])}")


def _demo(wheel: Path, folder: Path) -> None:
    name = _project()["name"]
    own = str(folder / "bin" / "python")
    _run(
        own,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        f"{name}[local] @ {wheel.resolve().as_uri()}",
    )
    _run(str(folder / "bin" / "kafka-pubsub"), "demo")


def _run(*command: str, quiet: bool = False) -> str:
    """Runs a command away from the checkout, and returns what it says; ends this program with that if it fails."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=empty, env=environment
        )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    if done.stdout and not quiet:
        print(done.stdout, end="")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
