"""What an inbox holds, and what a sequencer answers.

A message's destinations are topics. The topics of its handles take part as well, but don't get the message: they only
say whether they are deleted. Destinations and handles together are its participants. A message here is a batch of the
publisher's messages, which have one place in the order and come home one behind the other.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MessageTimestamp", "Output", "Proposal", "Propose", "Refuse", "Release", "Stage", "Timestamp"]


class Timestamp(NamedTuple):
    """A place in the order. Two clocks may show the same number; then the topics' names decide."""

    clock: int
    topic: str


class MessageTimestamp(NamedTuple):
    """A message's place in the order: the timestamp of its batch, and its number in the batch, from 0."""

    clock: int
    topic: str
    number: int


class Stage(NamedTuple):
    """A message that is to be ordered; the same record lies in the inbox of each participant.

    `deletes`: the destination that this message deletes, or empty. Such a message gets to all its destinations, deleted
    or not. `estimate`: the highest clock that the sender knows,
    so that blocks are placed near the message's final timestamp.
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

    `deleted`: whether that topic's deletion comes before the message. None: it isn't known yet, and the same proposal
    comes again once it is. `cause`: the offset, in the inbox of the proposing topic, of the record that caused it.
    """

    message: str
    timestamp: Timestamp
    deleted: bool | None
    cause: int = 0


class Propose(NamedTuple):
    """A proposal for the inboxes of these topics, the sequencer's own included; they must get it at one moment."""

    topics: tuple[str, ...]
    proposal: Proposal


class Release(NamedTuple):
    """A message goes to the home topic. `invalid`: those of its handles whose topics were deleted before."""

    message: str
    timestamp: Timestamp
    invalid: tuple[str, ...] = ()


class Refuse(NamedTuple):
    """A message that no destination gets, because these of them were deleted before."""

    message: str
    timestamp: Timestamp
    deleted: tuple[str, ...]


Output = Propose | Release | Refuse
