"""Several drafters in a row: the first that has a draft for a sequence wins."""

from collections.abc import Sequence as Series

import pytest

from surefoot.decoding import NO_DRAFT, Draft, Ending, Sampling, Sequence
from surefoot.drafting.chain import Chain
from surefoot.drafting.closing import close_drafter
from tests.drafting.texts import sequence_of
from tests.support.kinds import simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FunctionDrafter, OracleDrafter, RandomDrafter
from tests.support.play import begin, play_out

PROMPT = [3, 1, 4]


class Recorder:
    """Drafts the same tokens for the sequences it knows, and notes what it is told."""

    def __init__(self, name: str, *knows: Sequence, tokens: tuple[int, ...] = (1, 2)) -> None:
        self.name = name
        self._knows = knows
        self._tokens = tokens
        self.asked: list[Series[tuple[Sequence, int]]] = []
        self.learnt: list[tuple[Sequence, Draft, int]] = []
        self.forgotten: list[Sequence] = []
        self.closed = False

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        self.asked.append(wanted)
        return [Draft(self._tokens, self.name) if s in self._knows else NO_DRAFT for s, _ in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        self.learnt.append((sequence, draft, accepted))

    def forget(self, sequence: Sequence) -> None:
        self.forgotten.append(sequence)

    def close(self) -> None:
        self.closed = True


A, B, C = sequence_of([1]), sequence_of([2]), sequence_of([3])


def test_the_first_drafter_that_has_a_draft_wins() -> None:
    first, second = Recorder("first", A), Recorder("second", A, B)
    drafts = Chain([first, second]).propose([(C, 3), (A, 4), (B, 5)])
    assert drafts == [NO_DRAFT, Draft((1, 2), "first"), Draft((1, 2), "second")]


def test_later_drafters_are_asked_only_for_what_is_left() -> None:
    first, second, third = Recorder("first", A), Recorder("second", B, C), Recorder("third", A)
    Chain([first, second, third]).propose([(A, 4), (B, 5), (C, 6)])
    assert first.asked == [[(A, 4), (B, 5), (C, 6)]]
    assert second.asked == [[(B, 5), (C, 6)]]
    assert third.asked == []


def test_only_the_drafter_that_made_a_draft_hears_of_it() -> None:
    first, second = Recorder("first"), Recorder("second")
    chain = Chain([first, second])
    chain.learn(A, Draft((1, 2), "second"), 1)
    chain.learn(A, NO_DRAFT, 0)
    assert first.learnt == []
    assert second.learnt == [(A, Draft((1, 2), "second"), 1)]


def test_all_drafters_forget() -> None:
    first, second = Recorder("first"), Recorder("second")
    Chain([first, second]).forget(A)
    assert first.forgotten == second.forgotten == [A]


def test_its_name_shows_the_order_as_spec_type_takes_it() -> None:
    assert Chain([Recorder("b"), Recorder("a")]).name == "b,a"


def test_closing_it_closes_all_that_need_it() -> None:
    first, second = Recorder("first"), Recorder("second")
    close_drafter(Chain([first, RandomDrafter(1, 64), second]))
    assert first.closed
    assert second.closed


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_each_drafter_drafted_is_counted_under_its_name(temperature: float) -> None:
    """Cases K7 and O5: hand-over goes to the next; the parts add up to the totals."""
    sampling = Sampling(seed=5, temperature=temperature)
    text = [*PROMPT, *Oracle("hybrid").text(PROMPT, 48, sampling)]
    runtime = simulated("hybrid")
    sequence = begin(runtime, PROMPT, sampling=sampling, ending=Ending(max_tokens=40), max_draft=4)
    knows_half = FunctionDrafter(
        lambda s, most: text[len(s.committed) :][:most] if len(s.committed) % 2 else []
    )
    knows_half.name = "knows half"
    wrong = OracleDrafter({0: text}, 64, right=lambda _: False)
    rounds = play_out(runtime, [sequence], Chain([knows_half, wrong]))
    counts = sequence.counts
    assert list(sequence.committed) == text[: len(PROMPT) + 40]
    assert set(counts.by_drafter) == {"knows half", "test"}
    right, other = counts.by_drafter["knows half"], counts.by_drafter["test"]
    assert right.accepted >= right.drafted - 4 > 0
    assert other.accepted == 0 < other.drafted
    assert right.drafted + other.drafted == counts.drafted
    assert right.accepted + other.accepted == counts.accepted
    assert right.drafts + other.drafts == sum(outcome.drafted > 0 for (outcome,) in rounds)
    assert right.failure == other.failure == ""


def test_rounds_without_a_draft_are_nobodys() -> None:
    runtime = simulated("hybrid")
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=10))
    play_out(runtime, [sequence], Chain([Recorder("first"), Recorder("second")]))
    assert sequence.counts.by_drafter == {}
