"""The memory after a round is the memory of a straight decode, on every family of memory.

Cases A2, A3, A4, A13, D2 of the field: for every draft length and every accepted count, what the
model says next must be what it says after the same tokens decoded one at a time.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Series
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import (
    GREEDY,
    MAX_PENDING,
    Draft,
    Feed,
    Memory,
    Round,
    Sequence,
    absorb,
    memory_for,
)
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.conftest import FAMILY_FILES
from tests.support.near_ties import one_at_a_time
from tests.support.random_models import FAMILIES, random_model

LONGEST_DRAFT = 8
SUBJECTS = [*FAMILIES, "trained", "trained with snapshots"]


class OneDraft:
    """Proposes the draft that the test set, once."""

    name = "one draft"

    def __init__(self) -> None:
        self.next: list[int] = []

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        draft, self.next = self.next, []
        return [Draft(draft, self.name) for _ in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None: ...

    def forget(self, sequence: Sequence) -> None: ...


@dataclass
class Subject:
    """A loaded model, a prompt, what it says next, and the oracle's logits along that text."""

    runtime: LibllamaRuntime
    prompt: list[int]
    text: list[int]
    logits: NDArray[np.float32]
    tolerance: float

    def sequence(self, memory: Memory) -> Sequence:
        """A fresh sequence whose prompt is absorbed."""
        memory.clear()
        sequence = Sequence(list(self.prompt), memory, GREEDY)
        while absorb(self.runtime, sequence, 16):
            pass
        return sequence

    def draft(self, start: int, length: int, right: int) -> list[int]:
        """The tokens that follow, `right` of them right and the others wrong."""
        tokens = self.text[start : start + length]
        return [
            token if index < right else (token + 1) % self.runtime.vocabulary_size
            for index, token in enumerate(tokens)
        ]

    def check(self, sequence: Sequence) -> None:
        """What the model says after all that is committed is what the oracle says."""
        known = len(sequence.committed)
        assert sequence.committed == (self.prompt + self.text)[:known]
        feed = Feed(sequence.memory.id, sequence.pending, sequence.state_len, outputs=1)
        row = self.runtime.decode([feed])[0][0]
        assert np.abs(row - self.logits[known - 1]).max() <= self.tolerance


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    name: str = request.param
    trained = name.startswith("trained")
    path = models.TARGET if trained else random_model(name, FAMILY_FILES)
    snapshots = 4 if name.endswith("snapshots") else 0
    runtime = load(
        LoadSettings(path=path, slots=2, context_length=512, threads=1, snapshots=snapshots)
    )
    if trained:
        prompt = runtime.tokenizer.encode("class Point:\n    def __init__(self, x, y):\n")
    else:
        prompt = [3 + 7 * i % 101 for i in range(20)]
    text, logits = greedy_text(runtime, prompt, length=60)
    yield Subject(runtime, prompt, text, logits, tolerance=2 * runtime.logit_noise)
    runtime.close()


def greedy_text(
    runtime: LibllamaRuntime, prompt: list[int], length: int
) -> tuple[list[int], NDArray[np.float32]]:
    """The oracle's text, one token at a time, and its logits after each token of both."""
    rows = list(one_at_a_time(runtime, prompt, keep=True))
    text = [int(rows[-1].argmax())]
    while len(text) < length:
        feed = Feed(0, text[-1:], len(prompt) + len(text) - 1, outputs=1)
        rows.append(runtime.decode([feed])[0][0].copy())
        text.append(int(rows[-1].argmax()))
    runtime.drop(0)
    return text, np.array(rows)


def play(subject: Subject, sequence: Sequence, length: int, right: int) -> None:
    """One round with a draft of so many tokens, so many of them right."""
    drafter = OneDraft()
    drafter.next = subject.draft(sequence.generated, length, right)
    passes = subject.runtime.passes
    (outcome,) = Round(subject.runtime, drafter).play([sequence])
    assert subject.runtime.passes == passes + 1
    assert (outcome.drafted, outcome.accepted) == (length, right)
    assert outcome.tokens == subject.text[sequence.generated - right - 1 : sequence.generated]


@pytest.mark.parametrize("length", range(1, LONGEST_DRAFT + 1))
def test_every_accepted_count_leaves_the_oracles_state(subject: Subject, length: int) -> None:
    memory = memory_for(subject.runtime, 0, spare_id=2)
    for right in range(length + 1):
        sequence = subject.sequence(memory)
        play(subject, sequence, length, right)
        subject.check(sequence)


def test_a_draft_all_accepted_needs_no_way_back(subject: Subject) -> None:
    sequence = subject.sequence(memory_for(subject.runtime, 0, spare_id=2))
    play(subject, sequence, length=5, right=5)
    assert sequence.counts.rollbacks == 0
    assert len(sequence.pending) == 1
    subject.check(sequence)


def test_a_draft_all_rejected_leaves_the_state_of_one_plain_token(subject: Subject) -> None:
    sequence = subject.sequence(memory_for(subject.runtime, 0, spare_id=2))
    play(subject, sequence, length=5, right=0)
    assert sequence.counts.rollbacks == 1
    subject.check(sequence)


def test_rounds_without_a_draft_go_on_from_the_accepted_tokens(subject: Subject) -> None:
    """Case A2: drafters that may return nothing, after a round that accepted some."""
    sequence = subject.sequence(memory_for(subject.runtime, 0, spare_id=2))
    for length, right in [(3, 3), (0, 0), (3, 2), (0, 0), (0, 0), (4, 1), (0, 0), (3, 3)]:
        play(subject, sequence, length, right)
    subject.check(sequence)


def test_many_rejections_leave_no_trace(subject: Subject) -> None:
    """Case A3: a drafter that is wrong for forty rounds."""
    sequence = subject.sequence(memory_for(subject.runtime, 0, spare_id=2))
    for round_number in range(40):
        play(subject, sequence, length=1 + round_number % 4 if has_room(sequence) else 0, right=0)
    subject.check(sequence)


def has_room(sequence: Sequence) -> bool:
    """Whether the round will draft at all: with much pending it lets the memory catch up."""
    return len(sequence.pending) <= MAX_PENDING


def test_sequences_of_unequal_acceptance_end_with_their_own_states(subject: Subject) -> None:
    """Case J4: accepted counts (0, 4), (4, 0), (2, 3) in one pass each."""
    for first, second in [(0, 4), (4, 0), (2, 3)]:
        pair = [
            subject.sequence(memory_for(subject.runtime, slot, spare_id=2 + slot))
            for slot in (0, 1)
        ]
        drafter = PairOfDrafts([subject.draft(0, 4, first), subject.draft(0, 4, second)])
        passes = subject.runtime.passes
        outcomes = Round(subject.runtime, drafter).play(pair)
        assert subject.runtime.passes == passes + 1
        assert [outcome.accepted for outcome in outcomes] == [first, second]
        for sequence in pair:
            subject.check(sequence)
            sequence.memory.clear()


class PairOfDrafts(OneDraft):
    """One draft for each of two sequences."""

    def __init__(self, drafts: list[list[int]]) -> None:
        super().__init__()
        self._drafts = drafts

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        return [Draft(draft, self.name) for draft, _ in zip(self._drafts, wanted, strict=True)]
