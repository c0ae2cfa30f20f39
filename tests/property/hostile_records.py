"""A search for a body that crashes a codec, or takes too much of a process: `python -m tests.property.hostile_records`.

Each seed makes a schema, values and bodies. A value that fits comes back unchanged; another is refused, or comes back
too. A body is decoded, or refused by a `SchemaError`, within `SECONDS` and within the memory that the process may have.
Ends with 0, or with 1 and the seed that broke a promise; a crash ends the process by a signal.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from kafka_pubsub.errors import SchemaError
from kafka_pubsub.records.codec import FORMATS, Codec, Format
from kafka_pubsub.records.parsing import parse_schema
from tests.property.hostile_records_mutations import MUTATIONS
from tests.property.record_shapes import bombs, hostile, misfit, random_shape, text_of, value_of
from tests.unit.house.repository import ROOT

__all__ = ["RECORDS", "play", "search"]

#: Records of one schema.
RECORDS = 100
#: The processor's seconds for one record.
SECONDS = 5.0
_seconds = SECONDS
#: The bytes that a process may have more than at its beginning.
MEMORY = 2 << 30
#: The bytes by which the process may grow in memory.
GROWTH = 400 << 20
_BEGIN = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class TooLongError(BaseException):
    """A record took more than its seconds; no codec catches this error."""


@contextmanager
def _limited() -> Iterator[None]:
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, _seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    assert time.process_time() - begin < _seconds, "a record took too long"


def play(seed: int, format: Format) -> Counter[str]:
    """Plays a seed; returns how many records were decoded, and how many were refused."""
    random = Random(seed)
    shape = random_shape(random, format)
    try:
        with _limited():
            codec = parse_schema(format, text_of(shape, format))
    except SchemaError:
        return Counter(schemas_refused=1)
    found: Counter[str] = Counter(schemas=1)
    for _ in range(RECORDS // 4):
        value = value_of(shape, random, format)
        with _limited():
            body = codec.encode(value)
            back = codec.decode(body)
            assert back == value, f"{value!r:.300} came back as {back!r:.300}"
        _play_misfit(codec, misfit(value, random), found)
        for each in (hostile(body, random), hostile(body, random), body + b"\0"):
            _play_body(codec, each, found)
    return found


def _play_misfit(codec: Codec, value: Any, found: Counter[str]) -> None:
    with _limited():
        try:
            body = codec.encode(value)
        except SchemaError:
            found["values_refused"] += 1
            return
        back = codec.decode(body)
    found["values"] += 1
    if codec.format != "json":
        assert _is_same(value, back), f"{value!r:.300} was written as {back!r:.300}"


def _is_same(value: Any, back: Any) -> bool:
    """Whether a value came back; Protobuf has more fields, whole numbers as fractions, and an enum's name."""
    if isinstance(value, dict):
        return isinstance(back, dict) and all(_is_same(each, back[name]) for name, each in value.items())
    if isinstance(value, list):
        return len(value) == len(back) and all(map(_is_same, value, back))
    if value is None or (isinstance(back, str) and type(value) is int):
        return not back or isinstance(back, str)
    return bool(value == back) and (isinstance(value, bool) == isinstance(back, bool))


def _play_body(codec: Codec, body: bytes, found: Counter[str]) -> None:
    with _limited():
        try:
            value = codec.decode(body)
        except SchemaError:
            found["refused"] += 1
            return
        found["decoded"] += 1
        if codec.format != "avro" or len(body) > 1000:
            return
        # No byte of a body is left over, so a longer body is refused.
        try:
            codec.decode(body + b"\0")
        except SchemaError:
            return
    raise AssertionError(f"a byte was left over: {value!r:.100}")


def _play_bombs(format: Format) -> int:
    """Plays bodies that were made to do harm; returns how many."""
    found = bombs(format)
    for name, (text, body) in found.items():
        with _limited():
            try:
                parse_schema(format, text).decode(body)
            except SchemaError:
                pass
            else:
                raise AssertionError(f"{name}: it was decoded")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - _BEGIN
        assert grown < GROWTH, f"{name}: the process has grown by {grown} bytes"
    return len(found)


def _search(format: Format, seeds: range, records: int) -> Counter[str]:
    found = Counter(bombs=_play_bombs(format))
    for seed in seeds:
        try:
            found += play(seed, format)
        except BaseException:
            print(f"seed {seed}, {format}", file=sys.stderr)
            raise
        if found["refused"] + found["decoded"] + found["values"] + found["values_refused"] >= records:
            return found
    raise AssertionError("there are too few seeds")


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLongError


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def search(format: Format, *options: str) -> subprocess.CompletedProcess[str]:
    """Searches in a process of its own, which a body may crash, and whose memory has a limit."""
    command = [sys.executable, "-m", "tests.property.hostile_records", format, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def main() -> None:
    """Searches as the command line says."""
    global _seconds
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--records", type=int, default=100_000, help="how many records to play")
    parser.add_argument("--mutation", choices=MUTATIONS, help="a rule that is taken out of the codecs")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="what a record may take of the processor"
    )
    options = parser.parse_args()
    _seconds = options.seconds
    faulthandler.enable()
    signal.signal(signal.SIGVTALRM, _stop)
    parse_schema("json", "true")
    if options.mutation:
        MUTATIONS[options.mutation][1](pytest.MonkeyPatch())
    _limit_memory()
    begin = options.seed
    found = _search(options.format, range(begin, begin + options.records), options.records)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
