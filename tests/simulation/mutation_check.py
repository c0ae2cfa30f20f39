"""The frame of every test of the test: a rule is taken out of the client, and some seed must miss it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.simulation.plan import PlanVariant
from tests.simulation.world import SimulatedWorld, simulate

__all__ = ["Mutation", "in_both_worlds", "must_be_missed"]

#: Takes a rule out; its docstring says the fault then.
Mutation = Callable[[pytest.MonkeyPatch], None]

#: Seeds within which a mistake must show. Most do within forty; the shyest mistake needs about a third of them.
WITHIN = 600


def must_be_missed(
    mutation: Mutation,
    patch: pytest.MonkeyPatch,
    *,
    retry: bool = False,
    variant: PlanVariant | None = None,
    kind: type[SimulatedWorld] = SimulatedWorld,
) -> None:
    """Fails unless a seed goes wrong without the rule, and holds with it."""
    mutation(patch)
    for seed in range(WITHIN):
        try:
            simulate(seed, retry=retry, variant=variant, kind=kind)
        except Exception as error:  # a violation, or the client stumbling over itself
            if _is_outdated(error):
                raise
            patch.undo()  # the control
            simulate(seed, retry=retry, variant=variant, kind=kind)
            return
    raise AssertionError(f"{mutation.__doc__} Nobody noticed.")


def _is_outdated(error: Exception) -> bool:
    """Returns whether a call failed because of its arguments, as after a change of a signature."""
    return isinstance(error, TypeError) and ("argument" in str(error) or "unpack" in str(error))


def in_both_worlds(mutations: Mapping[Mutation, Sequence[bool]]) -> pytest.MarkDecorator:
    """Parameters `mutation` and `retry`: each in the worlds that it concerns, with a retry topic or without."""
    return pytest.mark.parametrize(
        ("mutation", "retry"),
        [
            pytest.param(mutation, retry, id=f"{getattr(mutation, '__name__', mutation)}{'-retry' * retry}")
            for mutation, kinds in mutations.items()
            for retry in kinds
        ],
    )
