"""Faults on demand: which of a runtime's calls fail."""

import random
from collections.abc import Callable, Collection

FaultPlan = Callable[[int], bool] | Collection[int] | float
"""Which calls fail: a function of the call's number (from 0), a set of numbers, or a probability
that is drawn from the seed."""


def fault_plan(plan: FaultPlan, seed: int) -> Callable[[int], bool]:
    """A plan as a function that is called once for each call, in order."""
    if callable(plan):
        return plan
    if isinstance(plan, Collection):
        return frozenset(plan).__contains__
    draws = random.Random(seed)
    probability = plan
    return lambda _: draws.random() < probability
