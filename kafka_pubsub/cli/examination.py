"""The checks of `doctor`, in the order in which one is of no use without those before.

Rules
1. A check that can't be made (a right is missing to look, there is nothing to look at) is no failure: it says why.
2. What is wrong has a command or a setting that mends it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_pubsub.access.rendering import render_commands, server_options
from kafka_pubsub.access.rights import Rule
from kafka_pubsub.errors import FailedPrecondition, PermissionDenied, PubSubError

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.log.kafka.cluster_facts import ClusterFacts

__all__ = ["Finding", "examine"]

_METADATA: Final = "offset.metadata.max.bytes"
_LEAST_METADATA: Final = 4096
#: Seconds by which clocks may differ.
_CLOCK: Final = 5.0
_OWN: Final = "_kafka_pubsub."
#: How kinds of resources are called by librdkafka's names of operations.
_UPPER: Final[Mapping[str, str]] = {"DescribeConfigs": "DESCRIBE_CONFIGS", "AlterConfigs": "ALTER_CONFIGS"}


class Finding(NamedTuple):
    """What a check found; `mend` is the command or setting that mends it, empty: nothing has to be."""

    check: str
    ok: bool
    says: str
    mend: str = ""


class Tools(NamedTuple):
    """How the commands of Kafka's own tools connect."""

    address: str
    command_config: str | None

    def grant(self, rule: Rule) -> str:
        """Returns the command that grants a rule; the user's name is for the reader to set."""
        return render_commands([rule], "User:NAME", self.address, command_config=self.command_config).strip()


def examine(
    pubsub: PubSub, role: str | None, rules: Sequence[Rule], command_config: str | None = None
) -> Iterator[Finding]:
    """Yields the findings as they come; a cluster that can't be used ends them.

    `command_config` is the config file with which the commands that mend connect; None: they have none.
    """
    from kafka_pubsub.log.kafka.backend import KafkaBackend
    from kafka_pubsub.log.kafka.cluster_facts import ClusterFacts

    try:
        backend = pubsub._cluster.backend
    except PubSubError as error:
        yield Finding("settings", False, error.message, "mend the setting that is named")
        return
    if not isinstance(backend, KafkaBackend):
        yield Finding("address", True, "in memory: there is no cluster to look at")
        return
    facts = ClusterFacts(backend)
    silent = facts.silent_addresses()
    if silent:
        text = f"nothing takes connections at {', '.join(silent)}"
        others = len(silent) < len(backend.address.split(","))
        yield Finding("address", others, text, "" if others else _address_advice(backend.address))
        if not others:
            return
    else:
        yield Finding("address", True, backend.address)
    try:
        brokers = facts.brokers()
    except FailedPrecondition as error:
        yield Finding("version", False, error.message, "update the brokers to Kafka 4.0 or newer")
        return
    except PubSubError as error:
        yield Finding("login", False, error.message, "mend the setting that is named: docs/connecting.md")
        return
    yield Finding("login", True, f"{brokers} {'broker answers' if brokers == 1 else 'brokers answer'}")
    yield Finding("version", True, "Kafka 4.0 or newer")
    tools = Tools(backend.address, command_config)
    checks: Sequence[tuple[str, Callable[[], Iterator[Finding]]]] = (
        ("rights", lambda: _rights(facts, tools, pubsub, rules)),
        ("transactions", lambda: _transactions(facts, tools, role, rules)),
        (_METADATA, lambda: _metadata(facts)),
        ("retention", lambda: _retention(pubsub, tools)),
        ("services", lambda: _services(pubsub)),
    )
    for name, check in checks:
        try:
            yield from check()
        except PermissionDenied as error:
            yield Finding(name, True, f"can't be looked at: {error.message}")
        except PubSubError as error:
            yield Finding(name, False, error.message, "try again; if it stays so, look at the brokers")


def _address_advice(address: str) -> str:
    return f"look whether it runs, and at the network: nc -vz {address.replace(':', ' ').split(',')[0]}"


def _rights(facts: ClusterFacts, tools: Tools, pubsub: PubSub, rules: Sequence[Rule]) -> Iterator[Finding]:
    backend = pubsub._cluster.backend
    visible = backend.admin.topic_names() if any(rule.prefix for rule in rules) else ()
    for rule in rules:
        if rule.type == "transactionalId":
            continue  # it can't be seen: a transaction is tried
        name = rule.name
        if rule.prefix and rule.type == "topic":
            name = _one_of(rule.name, visible)
        allowed = _allowed(facts, rule.type, name)
        what = f"{', '.join(rule.operations)} on {rule.type} {rule.name}{'*' if rule.prefix else ''}".rstrip()
        if allowed is None:
            reason = "there is none yet" if name else "this client sees none"
            yield Finding("rights", True, f"{what}: {reason}, so the rights to it can't be seen")
            continue
        missing = tuple(each for each in rule.operations if _UPPER.get(each, each.upper()) not in allowed)
        if missing:
            command = tools.grant(rule._replace(operations=missing))
            yield Finding("rights", False, f"this client lacks {', '.join(missing)} of {what}", command)
        else:
            yield Finding("rights", True, what)


def _one_of(prefix: str, visible: Iterable[str]) -> str:
    """Returns a topic whose name begins so; empty: none is known."""
    from kafka_pubsub.delays.layout import INGEST

    # Kafka lists only topics that the client may describe: without rights, ours are known by name only.
    own = (f"{_OWN}catalog", INGEST)
    return next((each for each in (*own, *visible) if each.startswith(prefix)), "")


def _allowed(facts: ClusterFacts, kind: str, name: str) -> Collection[str] | None:
    if kind == "cluster":
        return facts.cluster_operations()
    if not name:
        return None
    return facts.topic_operations(name) if kind == "topic" else facts.group_operations(name)


def _transactions(
    facts: ClusterFacts, tools: Tools, role: str | None, rules: Sequence[Rule]
) -> Iterator[Finding]:
    wanted = [rule for rule in rules if rule.type == "transactionalId" and rule.prefix]
    if role is not None and not wanted:
        yield Finding("transactions", True, f"a {role} needs none that can be tried")
        return
    ids = [f"{rule.name}doctor" for rule in wanted] or [f"{_OWN}doctor"]
    ingest = _dated_topic(facts)
    for each in ids:
        try:
            ahead = facts.transact(each, ingest)
        except PermissionDenied as error:
            rule = Rule("transactionalId", each.removesuffix("doctor"), True, ("Write",))
            if role is None:
                yield Finding("transactions", True, f"can't be tried: {error.message}")
            else:
                yield Finding("transactions", False, error.message, tools.grant(rule))
            continue
        yield Finding("transactions", True, f"one was begun and aborted, as {each}")
        yield _clock(ahead)


def _dated_topic(facts: ClusterFacts) -> str | None:
    from kafka_pubsub.delays.layout import INGEST

    return INGEST if "WRITE" in (facts.topic_operations(INGEST) or ()) else None


def _clock(ahead: float | None) -> Finding:
    if ahead is None:
        return Finding(
            "clock", True, "not known: there is no topic whose records brokers date, or it may not be written"
        )
    if abs(ahead) < _CLOCK:
        return Finding("clock", True, f"at most {max(abs(ahead), 0.1):.1f} s between here and the broker")
    way = "ahead of" if ahead > 0 else "behind"
    says = f"the broker's clock is {abs(ahead):.0f} s {way} this machine's"
    return Finding("clock", False, says, "set the clock that is wrong: timedatectl set-ntp true")


def _metadata(facts: ClusterFacts) -> Iterator[Finding]:
    found = facts.metadata_limit()
    if found is None:
        yield Finding(_METADATA, True, "not known: no broker shows it")
    elif found < _LEAST_METADATA:
        mend = f"set {_METADATA}={_LEAST_METADATA} in server.properties of every broker, and restart it"
        yield Finding(_METADATA, False, f"{found}, and subscriptions need {_LEAST_METADATA}", mend)
    else:
        yield Finding(_METADATA, True, str(found))


def _retention(pubsub: PubSub, tools: Tools) -> Iterator[Finding]:
    """Looks whether Kafka keeps what only this package may delete."""
    backend = pubsub._cluster.backend
    there = set(backend.admin.topic_names())
    wanted = {f"{_OWN}catalog": _COMPACTED, f"{_OWN}deadletters": _COMPACTED}
    wanted |= {name: _KEPT for name in there if name.startswith(f"{_OWN}delay.")}
    for record in backend.catalog.subscriptions().values():
        retries = [record.retry_topic, *(lane.retry_topic for lane in record.lanes.values())]
        wanted |= {each.name: _KEPT for each in retries if each is not None}
    looked = 0
    for name in sorted(there & set(wanted)):
        config = backend.admin.topic(name).config
        looked += 1
        wrong = {key: value for key, value in wanted[name].items() if config.get(key, value) != value}
        if wrong:
            settings = ",".join(f"{key}={value}" for key, value in wrong.items())
            now = ", ".join(f"{key}={config[key]}" for key in wrong)
            mend = (
                f"kafka-configs.sh {server_options(*tools)} --alter --entity-type topics "
                f"--entity-name {shlex.quote(name)} --add-config {shlex.quote(settings)}"
            )
            yield Finding(
                "retention", False, f"topic {name} has {now}: Kafka deletes messages that wait", mend
            )
    yield Finding("retention", True, f"{looked} topics of this package were looked at")


_COMPACTED: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}
_KEPT: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def _services(pubsub: PubSub) -> Iterator[Finding]:
    topics, backend = pubsub._cluster.delay_topics, pubsub._cluster.backend
    delays = topics.find() is not None
    causal = any(record.options.causal for record in backend.catalog.topics().values())
    for name, needed, count in (
        ("router", delays, pubsub.delays.routers),
        ("sequencer", causal, pubsub.multicast.sequencers),
    ):
        if not needed:
            yield Finding("services", True, f"no {name} is needed: there are no topics for it")
            continue
        running = count()
        mend = "" if running else f"kafka-pubsub service {name}"
        yield Finding(
            "services", bool(running), f"{running} {name}{'' if running == 1 else 's'} running", mend
        )
