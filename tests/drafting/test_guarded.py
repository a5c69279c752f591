"""A drafter that fails costs a request its drafts, never its text (case K7)."""

import logging
from collections.abc import Sequence as Series

import pytest

from surefoot.decoding import NO_DRAFT, Draft, Ending, Sampling, Sequence
from surefoot.drafting.chain import Chain
from surefoot.drafting.guarded import Guarded
from tests.drafting.texts import sequence_of
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import OracleDrafter, RandomDrafter
from tests.support.play import begin, play_out

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6]]
LENGTH = 30


class Broken(RandomDrafter):
    """Raises in one of its methods.

    Args:
        part: the method; `short` is a list of drafts that lacks one.
        after: so many calls of it work.
        victim: memory id of the sequences that it fails for; None for all.
    """

    name = "broken"

    def __init__(self, part: str, after: int = 0, victim: int | None = None) -> None:
        super().__init__(1, 64, full=True)
        self._part = part
        self._left = after
        self._victim = victim
        self.asked: list[Sequence] = []

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        self.asked += [sequence for sequence, _ in wanted]
        for sequence, _ in wanted:
            self._break("propose", sequence)
        drafts = super().propose(wanted)
        return drafts[1:] if self._part == "short" else drafts

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:  # noqa: ARG002
        self._break("learn", sequence)

    def forget(self, sequence: Sequence) -> None:
        self._break("forget", sequence)

    def _break(self, part: str, sequence: Sequence) -> None:
        if part == self._part and self._victim in (None, sequence.memory.id):
            self._left -= 1
            if self._left < 0:
                raise RuntimeError("out of ideas")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("part", ["propose", "short", "learn", "forget"])
@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_drafter_in_a_chain_is_counted_named_and_followed_by_the_next(
    kind: str, after: int, part: str, temperature: float
) -> None:
    ways = [Sampling(seed=seed, temperature=temperature) for seed in (1, 2)]
    oracle = Oracle(kind)
    texts = {
        slot: [*prompt, *oracle.text(prompt, LENGTH + 8, ways[slot])]
        for slot, prompt in enumerate(PROMPTS)
    }
    runtime = simulated(kind, slots=2)
    sequences = [
        begin(
            runtime,
            prompt,
            slot=slot,
            slots=2,
            sampling=ways[slot],
            ending=Ending(max_tokens=LENGTH),
            max_draft=4,
        )
        for slot, prompt in enumerate(PROMPTS)
    ]
    chain = Chain([Broken(part, after), OracleDrafter(texts, 64)])
    play_out(runtime, sequences, chain)
    for slot, sequence in enumerate(sequences):
        chain.forget(sequence)
        assert sequence.committed == texts[slot][: len(PROMPTS[slot]) + LENGTH]
        counts = sequence.counts
        broken = counts.by_drafter["broken"]
        if part != "forget":
            assert counts.by_drafter["test"].accepted > 10
        if part == "short":
            assert broken.failure == "0 drafts for 1 sequences"
        elif not (part == "forget" and after):
            assert broken.failure == "out of ideas"
            assert counts.drafter_errors == 1


def test_a_sequence_for_which_it_failed_is_not_asked_for_again() -> None:
    broken = Broken("propose")
    guarded, sequence = Guarded(broken), sequence_of([1])
    for _ in range(3):
        assert guarded.propose([(sequence, 4)]) == [NO_DRAFT]
    assert broken.asked == [sequence]
    guarded.forget(sequence)
    assert guarded.propose([(sequence, 4)]) == [NO_DRAFT]
    assert broken.asked == [sequence, sequence]


def test_other_sequences_go_on_with_it() -> None:
    guarded = Guarded(Broken("propose", victim=0))
    runtime = simulated("attention", slots=2)
    first, second = (begin(runtime, [1, 2], slot=slot, slots=2) for slot in range(2))
    for _ in range(2):
        drafts = guarded.propose([(first, 4), (second, 3)])
        assert [len(draft.tokens) for draft in drafts] == [0, 3]
    assert [s.counts.drafter_errors for s in (first, second)] == [1, 0]
    assert second.counts.by_drafter == {}


def test_the_log_has_the_whole_cause_once_and_a_line_for_each_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guarded = Guarded(Broken("propose"))
    with caplog.at_level(logging.WARNING):
        for token in range(3):
            guarded.propose([(sequence_of([token]), 4)])
    assert len(caplog.records) == 3
    assert all("drafter broken failed" in message for message in caplog.messages)
    assert all("out of ideas" in message for message in caplog.messages)
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]


def test_the_first_reason_is_kept() -> None:
    counts = sequence_of([1]).counts
    for reason in ("first", "second"):
        counts.add_failure("broken", reason)
    assert counts.by_drafter["broken"].failure == "first"
    assert counts.drafter_errors == 2
    assert counts.by_drafter["broken"].drafted == counts.drafted == 0
