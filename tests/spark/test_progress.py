"""The kept part of Spark's reports of batches: the last reports, and sums of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from spark.run.progress import KEPT, History, Progress, progress_of

if TYPE_CHECKING:
    from spark.base.files import Files


def report(**told: object) -> dict[str, object]:
    return {"sources": [source()], **told}


def source(**told: object) -> dict[str, object]:
    offsets = {"latestOffset": '{"t":{"0":9,"1":5}}', "endOffset": '{"t":{"0":7,"1":5}}', "metrics": {}}
    return {"numInputRows": 12, "processedRowsPerSecond": 4.0, **offsets, **told}


def test_what_a_report_says() -> None:
    assert progress_of(report()) == Progress(12, 4.0, 2)
    # Spark 4.1 leaves out where the log ends, and these figures of its are 0 though messages wait.
    wrong = {"avgOffsetsBehindLatest": "0.0", "maxOffsetsBehindLatest": "0"}
    newer = report(sources=[source(latestOffset=None, metrics=wrong)])
    assert progress_of(newer).behind is None
    silent = source(latestOffset=None, endOffset=None, metrics=None, processedRowsPerSecond=None)
    assert progress_of(report(sources=[silent])) == Progress(12, 0.0, None)


def test_a_batch_that_is_told_again_counts_once() -> None:
    history = History()
    assert history.is_new(0, Progress(10, 5.0, 3))
    history.take(0, Progress(10, 5.0, 3))
    assert not history.is_new(0, Progress(0, 0.0, 0))
    assert not history.is_new(0, Progress(10, 5.0, 3))
    assert history.total() == Progress(10, 5.0, 3)


def test_old_batches_are_summed_up() -> None:
    history = History()
    for number in range(KEPT + 5):
        history.take(number, Progress(10, 5.0, 100 - number))
    assert not history.is_new(2, Progress(10, 5.0, 98))
    assert history.total() == Progress(10 * (KEPT + 5), 5.0, 100 - KEPT - 4)
    assert [each["batch"] for each in history.facts()] == list(range(5, KEPT + 5))
    lines = [line.split() for line in history.table().splitlines()]
    assert lines[0] == ["batch", "read", "a", "second", "behind"]
    assert lines[1] == ["earlier", "50"]
    assert lines[-1] == ["all", str(10 * (KEPT + 5)), "5", str(100 - KEPT - 4)]
    assert History().table() == ""


def test_a_batch_that_is_repeated_after_a_stop_counts_once() -> None:
    from spark.base.connection import Connection
    from spark.run.job import Context
    from spark.run.streams import Run, Streaming

    run = Run(Context("cdc", Connection("localhost:1"), lambda _: None), Streaming(), cast("Files", None), {})
    for number in (4, 5, 5, 6):
        run._count(10, number)
    assert (run.batches, run.rows) == (3, 30)
