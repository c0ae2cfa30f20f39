"""What an inbox holds, and what a sequencer answers.

A message's destinations are partitions of topics. Those of its handles take part as well, but don't get the message:
they only say whether their topics are deleted. Destinations and handles together are its participants. A message here
is a batch of the publisher's messages, which have one place in the order and come home one behind the other.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "Alive",
    "Gone",
    "MessageTimestamp",
    "Output",
    "Proposal",
    "Propose",
    "Refuse",
    "Release",
    "Said",
    "Stage",
    "Timestamp",
]


class Timestamp(NamedTuple):
    """A place in the order. Two clocks may show the same number; then the participants' names decide."""

    clock: int
    topic: str


class MessageTimestamp(NamedTuple):
    """A message's place in the order: the timestamp of its batch, and its number in the batch, from 0.

    `topic`: the participant that gave it, as `billing/0@7fGh2kQz`: a topic, its partition, the beginning of its
    inbox's id.
    """

    clock: int
    topic: str
    number: int


class Stage(NamedTuple):
    """A message that is to be ordered; the same record lies in the inbox of each participant.

    `deletes`: the topic that this message deletes, an `@` and that topic's id, or empty. Such a message gets to all its
    destinations, deleted or not. `estimate`: the highest clock that the sender knows, so that blocks are placed near
    the message's final timestamp.
    """

    message: str
    destinations: tuple[str, ...]
    handles: tuple[str, ...] = ()
    deletes: str = ""
    estimate: int = 0

    @property
    def participants(self) -> tuple[str, ...]:
        """The destinations and the topics of the handles, each once, in the order of their names."""
        return tuple(sorted({*self.destinations, *self.handles}))


class Proposal(NamedTuple):
    """One participant's timestamp for a message.

    `deleted`: whether that topic's deletion lies before the message in its inbox. `cause`: the offset, in the inbox of
    the proposing participant, of the record that caused it.
    """

    message: str
    timestamp: Timestamp
    deleted: bool
    cause: int = 0


class Gone(NamedTuple):
    """The catalog doesn't list this participant any more: it will say nothing about what was staged before."""

    participant: str


class Alive(NamedTuple):
    """The topic was made, under this id; what lies behind is for it."""

    topic_id: str


#: What a record of an inbox says.
Said = Stage | Proposal | Gone | Alive


class Propose(NamedTuple):
    """A proposal for the inboxes of these participants, the sequencer's own included; all get it at one moment."""

    topics: tuple[str, ...]
    proposal: Proposal


class Release(NamedTuple):
    """A message goes to the home topic. `invalid`: those of its handles whose topics were deleted before."""

    message: str
    timestamp: Timestamp
    invalid: tuple[str, ...] = ()


class Refuse(NamedTuple):
    """A message that no destination gets, because these of them were deleted before, or are gone.

    `timestamp`: None if it has none, because a participant is gone.
    """

    message: str
    timestamp: Timestamp | None
    deleted: tuple[str, ...]


Output = Propose | Release | Refuse
