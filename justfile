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

# Ten times the seeds, rounds of a minute for each fault, long rounds on three brokers. Results go to docs/reliability.md.
deep:
    KAFKA_PUBSUB_DEEP=1 .venv/bin/pytest -m slow -n auto -o timeout=3600
    KAFKA_PUBSUB_HYPOTHESIS=deep .venv/bin/pytest -n auto -o timeout=3600 tests/property
    .venv/bin/python -m tests.simulation --seeds 10000
    .venv/bin/python -m tests.simulation --retry --seeds 10000
    .venv/bin/python -m tests.property.multicast_search --minutes 15
    .venv/bin/python -m tests.faults mixed --seed $(date +%Y%m%d) --seconds 1200 --rate 100 --keys 2000 --consumers 3 --partitions 6 --calm 30 --settle 1200
    .venv/bin/python -m tests.faults together --seed $(date +%Y%m%d) --seconds 1200 --rate 60 --keys 2000 --calm 20 --settle 1200

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

# Build the documentation as a site into build/site.
site:
    .venv/bin/zensical build --strict

# What checks the documentation: links, examples, words, the file map, the invariants.
docs:
    .venv/bin/pytest -q -n 0 tests/unit/house tests/simulation/test_document.py
