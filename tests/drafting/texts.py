"""Texts to draft in, and a stand-in for the target that knows how a text goes on."""

import random
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any, cast

from surefoot.decoding import Draft, Drafter, Sequence
from surefoot.decoding.memory import CuttableMemory


def random_text(seed: int, length: int, vocabulary: int = 50_000) -> list[int]:
    """Random tokens; with the whole vocabulary hardly one of them twice."""
    draws = random.Random(seed)
    return [draws.randrange(vocabulary) for _ in range(length)]


def sequence_of(tokens: Series[int]) -> Sequence:
    """A sequence that nothing runs; drafters look at its tokens only."""
    return Sequence(committed=list(tokens), memory=CuttableMemory(cast(Any, None), 0))


def draft(drafter: Drafter, sequence: Sequence, most: int = 1 << 10) -> list[int]:
    """The drafter's draft for one sequence, as a list."""
    return list(propose(drafter, sequence, most).tokens)


def propose(drafter: Drafter, sequence: Sequence, most: int = 1 << 10) -> Draft:
    """The drafter's draft for one sequence."""
    (proposed,) = drafter.propose([(sequence, most)])
    return proposed


@dataclass
class Played:
    """What a text cost: rounds, and draft tokens verified and accepted."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


def play(drafter: Drafter, prompt: Series[int], text: Series[int], most: int = 16) -> Played:
    """Generate a text that is known beforehand, with drafts; then the sequence is forgotten."""
    sequence = sequence_of(prompt)
    played = Played()
    while (done := len(sequence.committed) - len(prompt)) < len(text):
        rest = list(text[done:])
        proposed = propose(drafter, sequence, most)
        tokens = list(proposed.tokens)
        accepted = 0
        while accepted < min(len(tokens), len(rest)) and tokens[accepted] == rest[accepted]:
            accepted += 1
        sequence.committed += rest[: accepted + 1]
        if tokens:
            drafter.learn(sequence, proposed, accepted)
        played.rounds += 1
        played.drafted += len(tokens)
        played.accepted += accepted
    drafter.forget(sequence)
    return played


class CountedList(list[int]):
    """A list that counts how many of its items are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        items = super().__getitem__(index)
        self.reads += len(items) if isinstance(index, slice) else 1
        return items

    def __iter__(self) -> Any:
        self.reads += len(self)
        return super().__iter__()
