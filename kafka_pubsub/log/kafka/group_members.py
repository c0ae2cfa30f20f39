"""The members of a group, as a client outside of it sees them.

Theory. librdkafka 2.16 ends the process when it can't send a request to a group's coordinator (decision 065), as while
a broker starts again. The list of all groups isn't such a request, and says of each group whether it has members.

Rules
1. The coordinator is asked for members unless the list has just said that there are none: of a group that isn't listed
   it says whether this client may not see it.
2. The list leaves out groups that this client may not see, and those that don't exist. So for `any` a consumer asks for
   an offset of a group that isn't listed: that is refused for the first, and answered when the coordinator knows it.
3. A handle that described a group before its broker started again gets no answer about groups any more. So the handle
   is replaced when no answer has come for `FIRST` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_pubsub.errors import DeadlineExceeded, NotFound
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.rights import Doing, Right
from kafka_pubsub.log.kafka.stored_offsets import ask_coordinator

__all__ = ["GroupMembers"]

_T = TypeVar("_T")

#: Seconds for the first request that describes a group.
FIRST = 5.0

#: The states of groups without members.
_WITHOUT = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


class Asking(Protocol):
    """Makes a call with the admin client and the seconds that are left, again after a transient error."""

    def __call__(
        self,
        doing: str,
        call: Callable[[AdminClient, float], _T],
        refused: frozenset[int] = frozenset(),
        deadline: float | None = None,
        /,
    ) -> _T: ...


class Waiting(Protocol):
    """Waits for an answer."""

    def __call__(self, client: AdminClient, answer: Future[_T], left: float, /) -> _T: ...


class GroupMembers:
    """Looks at the members of groups, with an admin client's calls; `replace` has the next call use another client."""

    def __init__(
        self,
        handles: ClientFactory,
        deadline: float,
        ask: Asking,
        wait: Waiting,
        replace: Callable[[], None],
    ) -> None:
        self._handles = handles
        self._deadline = deadline
        self._ask, self._wait, self._replace = ask, wait, replace

    def any(self, group: str) -> bool:
        """Returns whether the group has members now."""
        known = self._find(group)
        if known is None:
            ask_coordinator(self._handles, self._deadline, group)
            known = self._find(group)
        return bool(known)

    def groups(self) -> Mapping[str, bool]:
        """Returns the groups that brokers list now; of each, whether it has members."""

        def find(client: AdminClient, left: float) -> dict[str, bool]:
            listed, errors = self._list(client, left)
            if errors and not listed:
                raise KafkaException(errors[0])
            return listed

        return self._ask("list of groups", find)

    def hosts(self, group: str, listed: Mapping[str, bool] | None = None) -> Sequence[str]:
        """Returns the host of each member that the group has now, as its coordinator sees it.

        `listed`: an answer of `groups`, instead of another list.
        """
        known = self._find(group) if listed is None else listed.get(group)
        if known is False:
            return ()

        def describe(client: AdminClient, left: float) -> list[str]:
            answer = client.describe_consumer_groups([group], request_timeout=left)[group]
            # A broker writes an address with a slash before it, where a name could stand.
            return [each.host.removeprefix("/") for each in self._wait(client, answer, left).members]

        doing = Doing(f"members of group {group!r}", Right("DESCRIBE", "group", group))
        try:
            try:
                return self._ask(doing, describe, frozenset(), min(FIRST, self._deadline))
            except DeadlineExceeded:
                self._replace()
                return self._ask(doing, describe)
        except NotFound:
            return ()

    def _find(self, group: str) -> bool | None:
        """Returns whether the group has members; None if no broker lists it."""

        def find(client: AdminClient, left: float) -> bool | None:
            listed, errors = self._list(client, left)
            if group not in listed and errors:  # that broker may be the group's coordinator
                raise KafkaException(errors[0])
            return listed.get(group)

        return self._ask("list of groups", find)

    def _list(self, client: AdminClient, left: float) -> tuple[dict[str, bool], Sequence[KafkaError]]:
        """Returns of each group that brokers list whether it has members, and the errors of brokers that didn't."""
        found = self._wait(client, client.list_consumer_groups(request_timeout=left), left)
        return {each.group_id: each.state not in _WITHOUT for each in found.valid}, found.errors
