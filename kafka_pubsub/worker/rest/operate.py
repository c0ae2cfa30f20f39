"""The questions and orders of the page: JSON under `/ui/api/`.

Rules
1. A route calls the methods of a command: `subscription list`, `keys`, `deadletter`, `delay list`, `multicast status`.
2. A change takes a query and no body. It concerns the messages that meet all conditions, without a condition all;
   an unknown condition is refused, so that a misspelt one doesn't pick more than was meant.
3. Each row says in `stuck` which of it needs an operator, and where the page shows that. JSON is ASCII: keys and
   headers may be no UTF-8.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import FastAPI, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from kafka_pubsub.delays.waiting import by_topic
from kafka_pubsub.errors import NotFound, PubSubError
from kafka_pubsub.worker.connectors import CLASS
from kafka_pubsub.worker.control import Control, Refused
from kafka_pubsub.worker.rest.access import Access

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.dead_letters.model import DeadLetterMessage, DeadLetterResult
    from kafka_pubsub.delays.calls import Delays
    from kafka_pubsub.delays.dead_letters import DelayDeadLetter
    from kafka_pubsub.delays.waiting import WaitingMessage
    from kafka_pubsub.multicast.calls import CausalTopics
    from kafka_pubsub.multicast.dead_letters import MulticastDeadLetter
    from kafka_pubsub.multicast.status import CausalStatus
    from kafka_pubsub.subscribe.retry_topic.key_states import KeyState
    from kafka_pubsub.subscribe.stream.status import SubscriptionState
    from kafka_pubsub.subscription import Subscription

__all__ = ["ServicePicked", "SubscriptionPicked", "add_operations"]

JsonValue = Mapping[str, "JsonValue"] | Sequence["JsonValue"] | str | int | float | bool | None
Row = dict[str, JsonValue]

#: Messages of a subscription's retry topic, and dead letters of it, that are counted, as of `subscription list`.
COUNTED: Final = 1000
#: Rows of a list, and delayed messages that are read for it.
LISTED: Final = 100
READ: Final = 20_000
#: Subscriptions that are asked at the same time.
AT_ONCE: Final = 8
#: Seconds after which a message to causal topics that isn't delivered is called stuck.
LONG: Final = 30.0
_NO_ROUTER, _NO_SEQUENCER = "messages wait, and no delay router runs", "messages wait, and no sequencer runs"
#: Keys that need an operator come first.
_ORDER = ("unreadable", "parked", "leased", "waiting")

Name = Annotated[str, Path(max_length=249, description="The subscription's name.")]
Service = Annotated[Literal["delays", "causal"], Path(description="The service that couldn't deliver them.")]


class SubscriptionPicked(BaseModel):
    """Messages of a subscription: those that meet all conditions. None, and an empty list: any."""

    model_config = ConfigDict(extra="forbid")

    key: list[str] = []
    id: list[str] = []
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for the methods of `Subscription`."""
        return {
            "keys": self.key or None,
            "ids": self.id or None,
            "since": self.since,
            "until": self.until,
            "error": self.error,
        }


class SubscriptionChange(SubscriptionPicked):
    """A change of the picked messages. `dry_run`: only counts them."""

    dry_run: bool = False


class Release(SubscriptionChange):
    """A release. `drop`: parked messages become dead letters."""

    drop: bool = False


class ServicePicked(BaseModel):
    """Dead letters of a service: `id` and `topic` pick some."""

    model_config = ConfigDict(extra="forbid")

    id: list[str] = []
    topic: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for the methods of `ServiceCalls`."""
        return {"ids": self.id or None, "topic": self.topic}


class ServiceChange(ServicePicked):
    """A change of the picked dead letters. `dry_run`: only counts them."""

    dry_run: bool = False


def add_operations(app: FastAPI, control: Control, pubsub: PubSub, access: Access) -> None:
    """Gives an app the routes. `pubsub`: the client that they use; `access`: tells whether a request may write."""
    _add_units(app, control, access)
    _add_subscriptions(app, pubsub)
    _add_dead_letters(app, pubsub)
    _add_services(app, pubsub)
    _add_service_letters(app, pubsub)


def _answer(value: JsonValue) -> Response:
    return Response(json.dumps(value), media_type="application/json")


def _add_units(app: FastAPI, control: Control, access: Access) -> None:
    @app.get("/ui/api/worker")
    def worker(request: Request) -> Response:
        """Says which worker answers, and whether the request's token may write."""
        may_write = not access.refusal("POST", request.url.path, request.headers)
        return _answer({"version": app.version, "address": control.address, "may_write": may_write})

    @app.get("/ui/api/units")
    def units() -> Response:
        """Lists the units, and how they are on this worker."""
        groups = control.listed()
        return _answer(_there(control.names(), lambda name: _unit(control, name, groups)))


def _add_subscriptions(app: FastAPI, pubsub: PubSub) -> None:
    @app.get("/ui/api/subscriptions")
    def subscriptions() -> Response:
        """Lists the subscriptions with their figures."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(lambda each: _there([each], _subscription), pubsub.list_subscriptions()))
        return _answer([row for rows in found for row in rows])

    @app.get("/ui/api/subscriptions/{name}/keys")
    def keys(name: Name) -> Response:
        """Lists the keys of a subscription that are held up; the first of them need an operator."""
        found = pubsub.subscription(name).keys()
        found.sort(key=lambda each: _ORDER.index(each.state))
        return _answer({"rows": [_key(each) for each in found[:LISTED]], "count": len(found)})

    @app.post("/ui/api/subscriptions/{name}/release")
    def release(name: Name, change: Annotated[Release, Query()]) -> Response:
        """Makes messages that wait due at once, or sends parked ones to the dead letters."""
        source = pubsub.subscription(name)
        done = source.release(**change.arguments(), drop=change.drop, dry_run=change.dry_run)
        return _answer(_result(done, change.dry_run, source))


def _add_dead_letters(app: FastAPI, pubsub: PubSub) -> None:
    @app.get("/ui/api/subscriptions/{name}/deadletters")
    def dead_letters(name: Name, picked: Annotated[SubscriptionPicked, Query()]) -> Response:
        """Lists the dead letters of a subscription."""
        return _answer(_list(pubsub.subscription(name).dead_letters(**picked.arguments()), _letter))

    @app.get("/ui/api/subscriptions/{name}/deadletters/{id}")
    def dead_letter(name: Name, id: str) -> Response:
        """Shows a dead letter with its data."""
        return _answer(_shown(id, pubsub.subscription(name).dead_letters(ids=[id]), _letter))

    @app.post("/ui/api/subscriptions/{name}/deadletters/replay")
    def replay(name: Name, change: Annotated[SubscriptionChange, Query()]) -> Response:
        """Delivers dead letters of a subscription again."""
        source = pubsub.subscription(name)
        done = source.replay_dead_letters(**change.arguments(), dry_run=change.dry_run)
        return _answer(_result(done, change.dry_run, source))

    @app.post("/ui/api/subscriptions/{name}/deadletters/purge")
    def purge(name: Name, change: Annotated[SubscriptionChange, Query()]) -> Response:
        """Gives dead letters of a subscription up."""
        source = pubsub.subscription(name)
        done = source.purge_dead_letters(**change.arguments(), dry_run=change.dry_run)
        return _answer(_result(done, change.dry_run))


def _add_services(app: FastAPI, pubsub: PubSub) -> None:
    @app.get("/ui/api/delays")
    def delays() -> Response:
        """Counts the delayed messages that wait, by topic, and lists the first that are due."""
        read = list(islice(pubsub.delays.waiting(), READ + 1))
        return _answer(_delays(read, _count(pubsub.delays.routers)))

    @app.get("/ui/api/causal")
    def causal() -> Response:
        """Lists the messages that wait in causal topics, and their reasons."""
        found, runs = pubsub.multicast.status(), _count(pubsub.multicast.sequencers)
        rows = [_causal(each, runs, datetime.now(UTC)) for each in found]
        return _answer({"sequencers": runs, "rows": rows})


def _add_service_letters(app: FastAPI, pubsub: PubSub) -> None:
    def calls(service: str) -> Delays | CausalTopics:
        return pubsub.delays if service == "delays" else pubsub.multicast

    @app.get("/ui/api/{service}/deadletters")
    def service_letters(service: Service, picked: Annotated[ServicePicked, Query()]) -> Response:
        """Lists the messages that routers, or sequencers, couldn't deliver."""
        return _answer(_list(calls(service).dead_letters(**picked.arguments()), _service_letter))

    @app.get("/ui/api/{service}/deadletters/{id}")
    def service_letter(service: Service, id: str) -> Response:
        """Shows one of them with its data."""
        return _answer(_shown(id, calls(service).dead_letters(ids=[id]), _service_letter))

    @app.post("/ui/api/{service}/deadletters/replay")
    def service_replay(service: Service, change: Annotated[ServiceChange, Query()]) -> Response:
        """Brings them to their topics."""
        done = calls(service).replay(**change.arguments(), dry_run=change.dry_run)
        return _answer(_result(done, change.dry_run))

    @app.post("/ui/api/{service}/deadletters/purge")
    def service_purge(service: Service, change: Annotated[ServiceChange, Query()]) -> Response:
        """Gives them up."""
        done = calls(service).purge(**change.arguments(), dry_run=change.dry_run)
        return _answer(_result(done, change.dry_run))


def _there(found: Iterable[Any], show: Callable[[Any], Row]) -> list[Row]:
    """Shows each, and leaves out those that are gone since they were listed."""
    rows: list[Row] = []
    for each in found:
        with contextlib.suppress(NotFound, Refused):
            rows.append(show(each))
    return rows


def _unit(control: Control, name: str, groups: Mapping[str, bool]) -> Row:
    status = control.status(name, groups)
    state = status["connector"]["state"]
    trace = status["connector"].get("trace", "")
    last = trace.strip().rpartition("\n")[2]
    stuck: list[JsonValue] = []
    if state in ("PAUSED", "STOPPED"):
        stuck.append(_need(f"{state.lower()} by an operator; it runs again when it is resumed", "units"))
    elif last:
        stuck.append(_need(last, "units"))
    return {
        "name": name,
        "kind": control.config(name)[CLASS],
        "state": state,
        "trace": trace,
        "members": [each["worker_id"] for each in status["tasks"]],
        "in_file": control.find(name).is_declared,
        "stuck": stuck,
    }


def _subscription(source: Subscription) -> Row:
    row: Row = {"name": source.name, "topic": source.topic}
    try:
        state = source.state(limit=COUNTED)
    except NotFound:
        raise
    except PubSubError as error:
        return row | {"problem": error.message, "stuck": [_need(error.message)]}
    return row | {
        "backlog": state.backlog,
        "lag": state.lag,
        "oldest": _at(state.oldest),
        "waiting_retry": state.waiting_retry,
        "parked": state.parked,
        "blocked_keys": state.blocked_keys,
        "dead_letters": state.dead_letters,
        "unread_retry": state.unread_retry,
        "unread_dead_letters": state.unread_dead_letters,
        "members": list(state.hosts),
        "problem": None,
        "stuck": list(_stuck(state)),
    }


def _stuck(state: SubscriptionState) -> Iterator[JsonValue]:
    if state.backlog and not state.members:
        yield _need(f"no process receives, unfinished messages: {state.backlog:,}")
    if state.parked:
        least = "at least " if state.unread_retry else ""
        yield _need(f"messages parked until they are released: {least}{state.parked:,}", "keys")
    if state.dead_letters:
        least = "at least " if state.unread_dead_letters else ""
        yield _need(f"dead letters: {least}{state.dead_letters:,}", "letters")


def _need(text: str, see: str = "") -> Row:
    """Returns a need of an operator. `see`: the part of the page that shows more; "": none does."""
    return {"text": text, "see": see}


def _key(state: KeyState) -> Row:
    return {
        **_bytes("key", state.key),
        "state": state.state,
        "why": f"{state.reason}: {state.error}" if state.error else state.reason,
        "since": _at(state.since),
        "next_due": _at(state.next_due),
        "attempt": state.attempt or None,
        "behind": state.behind,
        "message_id": state.message_id or None,
    }


def _letter(letter: DeadLetterMessage) -> Row:
    error = ": ".join(filter(None, (letter.error_class, letter.error)))
    return {
        "id": letter.id,
        "message_id": letter.message_id,
        **_bytes("key", letter.key),
        "topic": letter.topic,
        "died": _at(letter.died),
        "attempts": letter.attempts,
        "replays": letter.replays,
        "why": error or letter.reason,
        "problem": letter.problem,
    }


def _service_letter(letter: DelayDeadLetter | MulticastDeadLetter) -> Row:
    return {
        "id": letter.id,
        "message_id": letter.message_id,
        "key": letter.ordering_key,
        "topic": letter.topic,
        "died": _at(letter.died),
        "why": letter.reason,
        "problem": letter.problem,
    }


def _list(found: Iterator[Any], show: Callable[[Any], Row]) -> Row:
    """Returns the first rows, and whether there are more."""
    some = list(islice(found, LISTED + 1))
    return {"rows": [show(each) for each in some[:LISTED]], "more": len(some) > LISTED}


def _shown(id: str, found: Iterator[Any], show: Callable[[Any], Row]) -> Row:
    letter = next(found, None)
    if letter is None:
        raise NotFound(f"no dead letter {id}: it may have been replayed or purged")
    return show(letter) | {"attributes": dict(letter.attributes), **_bytes("data", letter.data)}


def _delays(read: Sequence[WaitingMessage], routers: int | None) -> Row:
    found, now = read[:READ], datetime.now(UTC)
    rows: list[JsonValue] = []
    for topic, some in by_topic(found).items():
        dues = [each.due for each in some if each.due is not None]
        rows.append(
            {
                "topic": topic,
                "waiting": len(some),
                "overdue": sum(due < now for due in dues),
                "first_due": _at(min(dues, default=None)),
                "last_due": _at(max(dues, default=None)),
                "stuck": [] if routers != 0 else [_need(_NO_ROUTER, "delays")],
            }
        )
    first = sorted(found, key=lambda each: each.due or now)[:LISTED]
    return {
        "routers": routers,
        "rows": rows,
        "more": len(read) > READ,
        "messages": [
            {
                "message_id": each.message_id,
                "topic": each.topic,
                "key": each.ordering_key,
                "due": _at(each.due),
                "size": each.size,
            }
            for each in first
        ],
    }


def _causal(found: CausalStatus, sequencers: int | None, now: datetime) -> Row:
    block = found.block
    stuck: list[JsonValue] = [_need(found.problem, "causal")] if found.problem else []
    if found.pending and sequencers == 0:
        stuck.append(_need(_NO_SEQUENCER, "causal"))
    elif block is not None and (now - block.since).total_seconds() > LONG:
        stuck.append(_need(f"message {block.message_id} is held by {', '.join(block.held_by)}", "causal"))
    return {
        "topic": found.topic,
        "partition": found.partition,
        "deleted": found.deleted,
        "pending": found.pending,
        "unread": found.unread,
        "uncommitted": found.uncommitted,
        "oldest": None if block is None else block.message_id,
        "since": None if block is None else _at(block.since),
        "held_by": [] if block is None else list(block.held_by),
        "stuck": stuck,
    }


def _count(ask: Callable[[], int]) -> int | None:
    """Returns how many services run; None: the cluster doesn't tell."""
    try:
        return ask()
    except PubSubError:
        return None


def _result(done: DeadLetterResult, dry_run: bool, receiver: Subscription | None = None) -> Row:
    """Returns the result. `receiver`: the subscription that delivers it, which may wait until a process receives."""
    waits = receiver is not None and bool(done.count) and not dry_run and not receiver.state(limit=0).members
    return {
        "count": done.count,
        "keys": done.keys,
        "skipped": dict(done.skipped),
        "dry_run": dry_run,
        "waits": waits,
    }


def _bytes(name: str, raw: bytes | None) -> Row:
    """Returns bytes as text, or in base64 with a mark if they are no UTF-8."""
    try:
        return {name: None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(raw or b"").decode(), f"{name}_encoding": "base64"}


def _at(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")
