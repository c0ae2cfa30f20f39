"""The log as JSON, a line a record, with the ids of the span in which it was written.

Rule: a formatter never raises: what can't be written as JSON is written as its text. An `extra` of a name that the
formatter gives itself is left out.
"""

from __future__ import annotations

import json
import logging
import sys
import time

__all__ = ["JsonFormatter"]

#: The attributes that every record has; the others were given as `extra`.
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as an object: time, level, logger, message, an error's class and traceback, and `extra`.

    Inside a span of OpenTelemetry `trace_id` and `span_id` are there as well.

    Example:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        logging.getLogger().addHandler(handler)
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
            **_span_ids(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            said["error"] = record.exc_info[0].__qualname__
            said["traceback"] = self.formatException(record.exc_info)
        extra = {name: value for name, value in record.__dict__.items() if name not in _USUAL}
        try:
            return json.dumps({**extra, **said}, default=str, ensure_ascii=False)
        except Exception:
            return json.dumps({**said, "extra": _text(extra)}, ensure_ascii=False)


def _text(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"can't be shown: {type(error).__qualname__}"


def _span_ids() -> dict[str, str]:
    trace = sys.modules.get("opentelemetry.trace")  # a program that makes spans has imported it
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": format(context.trace_id, "032x"), "span_id": format(context.span_id, "016x")}
