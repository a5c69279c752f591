"""Several drafters in a row: the first that has a draft for a sequence wins."""

from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Sequence
from surefoot.drafting.chain import Chain
from tests.drafting.texts import sequence_of


class Recorder:
    """Drafts the same tokens for the sequences it knows, and notes what it is told."""

    def __init__(self, name: str, *knows: Sequence, tokens: tuple[int, ...] = (1, 2)) -> None:
        self.name = name
        self._knows = knows
        self._tokens = tokens
        self.asked: list[Series[tuple[Sequence, int]]] = []
        self.learnt: list[tuple[Sequence, Draft, int]] = []
        self.forgotten: list[Sequence] = []

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        self.asked.append(wanted)
        return [Draft(self._tokens, self.name) if s in self._knows else NO_DRAFT for s, _ in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        self.learnt.append((sequence, draft, accepted))

    def forget(self, sequence: Sequence) -> None:
        self.forgotten.append(sequence)


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
