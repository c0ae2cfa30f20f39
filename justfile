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

# Unit tests that start no broker, or those that you name: `just fast tests/unit/core`.
fast *paths="tests/unit --ignore tests/unit/house --ignore tests/unit/local/test_commands.py":
    .venv/bin/pytest -q -n auto {{paths}}

# The fast suite, as the README runs it.
test:
    .venv/bin/pytest -n auto

# The slow suite: broken brokers, long searches, Spark.
slow:
    .venv/bin/pytest -m slow -n auto

# Record the seconds of each test in tests/durations.json, by which `-n auto` hands tests out. On an idle machine.
durations:
    KAFKA_PUBSUB_DURATIONS=tests/durations.json .venv/bin/pytest -n auto
    KAFKA_PUBSUB_DURATIONS=tests/durations.json .venv/bin/pytest -m slow -n auto

# The benchmarks, at tiny sizes unless you pass options: `just bench --scenario pull --repeat 3`.
bench *options="--quick":
    .venv/bin/python -m tests.benchmarks {{options}}

# What checks the documentation: links, examples, words, the file map, the invariants.
docs:
    .venv/bin/pytest -q -n 0 tests/unit/house tests/simulation/test_document.py
