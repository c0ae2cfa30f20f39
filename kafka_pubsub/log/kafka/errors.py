"""Translates the errors of librdkafka and of brokers into this package's errors.

Rules
1. A text says what the client was doing, what happened and what you can do about it. The name of Kafka's error code
   stands at the end, in brackets, so that you can search for it.
2. The class says what can help: `BrokerUnavailable` and `DeadlineExceeded` pass by themselves (those
   in `TRANSIENT` within a second or so); the others need a change to the program, its config or the cluster.
3. A code that isn't in the table is a `PubSubError`, never an exception of librdkafka's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.errors import (
    AlreadyExists,
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PubSubError,
    ResourceExhausted,
    TooFewBrokers,
)
from kafka_pubsub.log.kafka.rights import Doing, Kind

#: The text that librdkafka puts around the reason: its own name for the broker, and the time that it took.
_NOISE = re.compile(
    r"^\S+/\S+: |Connect to (ipv[46]#)?\S+ failed: "
    r"| \(after \d+ms in state [A-Z_]+(, \d+ identical error\(s\) suppressed)?\)"
)

__all__ = [
    "CONNECTION",
    "FENCED",
    "HAS_MEMBERS",
    "PARTITION_FATAL",
    "READER_FATAL",
    "STALE_LEADER",
    "TRANSIENT",
    "UNKNOWN_TOPIC",
    "denied_topic",
    "error_of",
    "is_denial",
    "is_refusal",
    "is_transient",
    "translate",
    "unreachable",
]


class _Meaning(NamedTuple):
    kind: type[PubSubError]
    text: str


#: Errors about reaching a broker at all; librdkafka goes on trying by itself.
CONNECTION = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE})

#: Answers that pass by themselves: an election, a coordinator that moves or loads its state.
TRANSIENT = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        # The broker left the cluster's list during the request.
        KafkaError._DESTROY_BROKER,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)

#: Answers of a broker that isn't the partition's leader any more, or not yet. librdkafka remembers leaders, and some of
#: its requests go to the remembered one until the metadata is refreshed.
STALE_LEADER = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)

#: The topic doesn't exist, or the broker doesn't know it yet.
UNKNOWN_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})

#: The broker's answers to commits from outside while the group has members.
HAS_MEMBERS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)

#: Part of the broker's text when no broker may take replicas for the moment: one that is starved of processor time
#: misses its heartbeats and is fenced until the next.
_ALL_FENCED = "currently fenced"
#: Errors after which a member of a group can't go on reading.
READER_FATAL = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.GROUP_MAX_SIZE_REACHED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._FATAL,
        KafkaError._FENCED,
    }
)

#: Errors after which one partition can't be read on from where the reader is.
PARTITION_FATAL = frozenset(
    {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._UNKNOWN_PARTITION}
)

#: The group's or the transaction's coordinator no longer accepts this client: another one took its place.
FENCED = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._FENCED,
    }
)

#: How brokers say that they don't take a client's certificate; the connection ends with it.
_BAD_CERTIFICATE = re.compile(r"alert (bad certificate|certificate \w+|unknown ca)\b")

#: What librdkafka says of a broker's certificate that it can't verify.
_BAD_BROKER = "certificate verify failed"

_LOOK = "check the address, that the cluster runs, and the network between"
_NO_BROKER = f"no broker could be reached; {_LOOK}"
_BUSY = "the cluster is electing or loading what this needs; it passes by itself, try again"
_FENCED_BROKERS = "no broker may take replicas: all have missed their heartbeats; look at their load"
_SLOW = "no answer in time; the cluster is overloaded or partly down, try again"
_GONE = "the cluster gave this client's place to another (it was silent too long, or was replaced)"
_RULES = "the cluster's access rules forbid it"
_DAMAGED = "the stored batch can't be decoded; look at the producer that wrote it and at the broker's disk"

#: The kind of resource on which a right is missing.
_DENIALS: Mapping[int, Kind] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
}

_MEANINGS: Mapping[int, _Meaning] = {
    **dict.fromkeys(TRANSIENT, _Meaning(BrokerUnavailable, _BUSY)),
    **dict.fromkeys(CONNECTION, _Meaning(BrokerUnavailable, _NO_BROKER)),
    **dict.fromkeys(FENCED, _Meaning(FailedPrecondition, _GONE)),
    KafkaError._TIMED_OUT: _Meaning(DeadlineExceeded, _SLOW),
    KafkaError.REQUEST_TIMED_OUT: _Meaning(DeadlineExceeded, _SLOW),
    KafkaError._MSG_TIMED_OUT: _Meaning(DeadlineExceeded, _SLOW),
    KafkaError._TIMED_OUT_QUEUE: _Meaning(DeadlineExceeded, _SLOW),
    KafkaError.UNSTABLE_OFFSET_COMMIT: _Meaning(
        DeadlineExceeded,
        "a transaction with this group's positions is open; it ends within 20 s, or when its writer is fenced",
    ),
    KafkaError.NOT_ENOUGH_REPLICAS: _Meaning(
        BrokerUnavailable,
        "too few in-sync replicas; bring the missing brokers back or lower min.insync.replicas",
    ),
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _Meaning(
        BrokerUnavailable, "written, but on too few in-sync replicas; bring the missing brokers back"
    ),
    KafkaError.KAFKA_STORAGE_ERROR: _Meaning(
        BrokerUnavailable, "a broker's disk failed or is full; look there"
    ),
    **dict.fromkeys(_DENIALS, _Meaning(PermissionDenied, _RULES)),
    KafkaError._AUTHENTICATION: _Meaning(
        PermissionDenied,
        "the broker refused the login; check security.protocol and the sasl.* or ssl.* settings",
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: _Meaning(
        PermissionDenied, "the broker refused the login; check sasl.username and sasl.password"
    ),
    KafkaError._SSL: _Meaning(
        BrokerUnavailable, "TLS failed; check security.protocol and the ssl.* settings"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: _Meaning(NotFound, "there is no such topic or partition"),
    KafkaError.UNKNOWN_TOPIC_ID: _Meaning(NotFound, "the topic was deleted, and perhaps made again"),
    KafkaError._UNKNOWN_TOPIC: _Meaning(NotFound, "there is no such topic"),
    KafkaError._UNKNOWN_PARTITION: _Meaning(NotFound, "there is no such partition"),
    KafkaError._NOENT: _Meaning(NotFound, "there is no such topic or partition"),
    KafkaError.GROUP_ID_NOT_FOUND: _Meaning(NotFound, "there is no such group"),
    KafkaError.TOPIC_ALREADY_EXISTS: _Meaning(AlreadyExists, "there is such a topic already"),
    KafkaError.TOPIC_EXCEPTION: _Meaning(
        InvalidArgument,
        "Kafka can't hold that name: 1 to 249 of A-Z, a-z, 0-9, '.', '_', '-', and not alike another",
    ),
    KafkaError.INVALID_PARTITIONS: _Meaning(InvalidArgument, "that number of partitions isn't possible"),
    KafkaError.INVALID_REPLICATION_FACTOR: _Meaning(
        TooFewBrokers, "replication is larger than the number of brokers; ask for less or add brokers"
    ),
    KafkaError.INVALID_CONFIG: _Meaning(InvalidArgument, "the broker refuses a setting or its value"),
    KafkaError.INVALID_REQUEST: _Meaning(InvalidArgument, "the broker refuses the request as it stands"),
    KafkaError.INVALID_GROUP_ID: _Meaning(InvalidArgument, "Kafka can't hold that group name"),
    KafkaError.INVALID_SESSION_TIMEOUT: _Meaning(
        InvalidArgument, "the broker allows another range for session.timeout.ms; set it in config"
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: _Meaning(
        InvalidArgument, "larger than the topic's max.message.bytes; send less or raise the topic's limit"
    ),
    KafkaError.INVALID_MSG_SIZE: _Meaning(InvalidArgument, "larger than the broker takes in one batch"),
    KafkaError.INVALID_RECORD: _Meaning(
        InvalidArgument, "the broker refuses the record as it stands (a compacted topic needs a key)"
    ),
    KafkaError.OFFSET_METADATA_TOO_LARGE: _Meaning(
        InvalidArgument,
        "the broker stores less text beside an offset than this; set offset.metadata.max.bytes on every broker to "
        "4096, Kafka's default, or more",
    ),
    KafkaError._INVALID_ARG: _Meaning(InvalidArgument, "librdkafka refuses an argument or setting"),
    KafkaError.POLICY_VIOLATION: _Meaning(
        FailedPrecondition, "a policy of the cluster forbids it; ask its operator or change what is asked for"
    ),
    KafkaError.NON_EMPTY_GROUP: _Meaning(
        FailedPrecondition, "the group has members; close every stream of the subscription first"
    ),
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC: _Meaning(
        FailedPrecondition, "the group is reading the topic; close every stream of the subscription first"
    ),
    KafkaError.REBALANCE_IN_PROGRESS: _Meaning(
        BrokerUnavailable, "the group is sharing out its partitions; it passes by itself, try again"
    ),
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: _Meaning(
        FailedPrecondition,
        "the group's other members use another protocol or assignor; stop them, or set group_protocol alike",
    ),
    KafkaError.GROUP_MAX_SIZE_REACHED: _Meaning(ResourceExhausted, "the group has as many members as it may"),
    KafkaError.OFFSET_OUT_OF_RANGE: _Meaning(
        FailedPrecondition,
        "the position is no longer stored: retention or an operator removed those messages",
    ),
    KafkaError._AUTO_OFFSET_RESET: _Meaning(
        FailedPrecondition,
        "the position is no longer stored: retention or an operator removed those messages",
    ),
    KafkaError._MAX_POLL_EXCEEDED: _Meaning(
        FailedPrecondition,
        "nothing was read for longer than max.poll.interval.ms, so the group went on without us",
    ),
    KafkaError._STATE: _Meaning(FailedPrecondition, "the client isn't in the state that this needs"),
    KafkaError._DESTROY: _Meaning(FailedPrecondition, "the client is being closed"),
    KafkaError.UNSUPPORTED_VERSION: _Meaning(
        FailedPrecondition, "the broker is too old for it, or has that feature switched off"
    ),
    KafkaError._UNSUPPORTED_FEATURE: _Meaning(FailedPrecondition, "the broker is too old for it"),
    KafkaError.TOPIC_DELETION_DISABLED: _Meaning(
        FailedPrecondition, "the cluster forbids deleting topics (delete.topic.enable=false)"
    ),
    KafkaError.SECURITY_DISABLED: _Meaning(FailedPrecondition, "the cluster has no access rules switched on"),
    KafkaError._QUEUE_FULL: _Meaning(ResourceExhausted, "too much waits to be sent; publish more slowly"),
    KafkaError._BAD_COMPRESSION: _Meaning(PubSubError, _DAMAGED),
    KafkaError._BAD_MSG: _Meaning(PubSubError, _DAMAGED),
    KafkaError.INVALID_MSG: _Meaning(PubSubError, _DAMAGED),
}

#: Codes whose own text names the cause (a setting, a policy's reason), so it is quoted.
_QUOTED = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._STATE,
        KafkaError._TRANSPORT,
    }
)


def error_of(failure: KafkaError | KafkaException) -> KafkaError:
    """Returns the `KafkaError` inside an exception of librdkafka."""
    if isinstance(failure, KafkaError):
        return failure
    inner = failure.args[0] if failure.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(failure))


def is_denial(error: KafkaError) -> bool:
    """Returns whether a right is missing."""
    return error.code() in _DENIALS


def is_refusal(error: KafkaError) -> bool:
    """Returns whether a broker refuses this client, or the client the broker, as it will the next time, too."""
    refusals = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
    text = error.str()
    return error.code() in refusals or _BAD_BROKER in text or _BAD_CERTIFICATE.search(text) is not None


def is_transient(failure: BaseException) -> bool:
    """Returns whether the same call is likely to work in a moment."""
    if not isinstance(failure, KafkaException):
        return False
    error = error_of(failure)
    return error.code() in TRANSIENT or _all_brokers_fenced(error)


def _all_brokers_fenced(error: KafkaError) -> bool:
    return error.code() == KafkaError.INVALID_REPLICATION_FACTOR and _ALL_FENCED in error.str()


def translate(failure: KafkaError | KafkaException, doing: str) -> PubSubError:
    """Translates the error; `doing` names the action that failed ("create topic 'orders'").

    If it is a `Doing`, the text names the missing right.
    """
    error = error_of(failure)
    meaning = _MEANINGS.get(error.code(), _Meaning(PubSubError, ""))
    if _all_brokers_fenced(error):
        meaning = _Meaning(BrokerUnavailable, _FENCED_BROKERS)
    said = error.str().strip()
    text = meaning.text or f"the cluster refused it: {said}"
    if error.code() in _DENIALS:
        text += _missing(_DENIALS[error.code()], doing)
    quote = f": {_NOISE.sub('', said)}" if meaning.text and said and error.code() in _QUOTED else ""
    return meaning.kind(f"{doing}: {text}{quote} [{error.name()}]")


def _missing(kind: Kind, doing: str) -> str:
    """Returns which right is missing, behind "the access rules forbid it"."""
    needs = [str(each) for each in doing.needs if each.kind == kind] if isinstance(doing, Doing) else []
    if not needs:
        return f"; ask for the right on the {kind}"
    return f": this client needs {' and '.join(needs)}; ask for {'that right' if len(needs) == 1 else 'these rights'}"


def denied_topic(error: PermissionDenied, partitions: int, config: Mapping[str, str]) -> PermissionDenied:
    """Returns the error for a topic that this client may not make; it says how an operator makes the topic."""
    counted = "1 partition" if partitions == 1 else f"{partitions} partitions"
    settings = "".join(f", {name}={value}" for name, value in config.items())
    return PermissionDenied(f"{error.message}, or have the topic made with {counted}{settings}")


def unreachable(doing: str, address: str, trouble: KafkaError | None) -> PubSubError:
    """Returns the error for a missing answer; `trouble` is librdkafka's last complaint, None: there was none."""
    if trouble is not None and _BAD_CERTIFICATE.search(trouble.str()):
        return PermissionDenied(
            f"{doing} at {address}: the broker refused this client's certificate: it is missing, has expired, or its "
            f"CA isn't trusted there; check ssl.certificate.location and ssl.key.location: {_reason(trouble)}"
        )
    if trouble is not None and _BAD_BROKER in trouble.str():
        return BrokerUnavailable(
            f"{doing} at {address}: TLS failed, since the broker's certificate couldn't be verified: give the CA that "
            f"signed it as ssl.ca.location, and look whether it has expired: {_reason(trouble)}"
        )
    if trouble is None or trouble.code() in CONNECTION or trouble.code() == KafkaError._BAD_MSG:
        missing = BrokerUnavailable(f"no broker answers at {address} ({_reason(trouble)}): {_LOOK}")
        missing.outage = True
        return missing
    return translate(trouble, f"{doing} at {address}")


def _reason(trouble: KafkaError | None) -> str:
    """Returns why no broker could be reached, in a few words."""
    # "1/1 brokers are down" names no reason, so none is known: something takes connections and doesn't answer.
    if trouble is None or trouble.code() == KafkaError._ALL_BROKERS_DOWN:
        return "no answer; if it expects TLS or a login, set security.protocol" if trouble else "no answer"
    said = _NOISE.sub("", trouble.str()).strip()
    if trouble.code() == KafkaError._RESOLVE:
        return f"host not found: {said.rpartition(': ')[2]}"
    if trouble.code() == KafkaError._BAD_MSG:
        return "what answers there doesn't speak Kafka's protocol"
    if "timed out" in said:
        return "no answer"
    return said if said[1:2].isupper() else said[:1].lower() + said[1:]  # "SSL handshake failed" stays
