"""The next turn evaluates what is new, and what the memory could not keep; nothing else (theme B).

All of it is asserted on the runtime's count of evaluated tokens, never on logs or on what the
engine says of itself (case B14); what it says is compared with the count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from surefoot.decoding import MAX_PENDING
from surefoot.engine import Engine, Generation
from surefoot.runtime.simulated import FaultPlan, SimulatedRuntime
from tests.engine.playing import ALL_KINDS, Asker, engine_of, often_right, run_all
from tests.support.kinds import KINDS

PROMPT = [300, 301, 257, 256, 270, 271, 272]
NEW = [400, 401, 402]
DEPTH = 4
CUTTABLE = ["attention", "windowed"]
FORKED = ["recurrent", "hybrid"]


class Turn(NamedTuple):
    """A generation, and how many tokens the runtime evaluated for it."""

    generation: Generation
    evaluated: int

    @property
    def reused(self) -> int:
        """Tokens of the prompt that were not evaluated, if the turn was played without drafts."""
        generated = len(self.generation.tokens)
        return len(self.generation.request.prompt) + generated - 1 - self.evaluated


@dataclass
class Chat:
    """One slot, and the turns played on it.

    Attributes:
        kind: kind of memory.
        right: where drafts are right.
        refuse_cut: which cuts the runtime refuses.
    """

    kind: str
    right: Callable[[int], bool] = often_right
    refuse_cut: FaultPlan = ()

    def __post_init__(self) -> None:
        self.asker = Asker(self.kind)
        drafter = self.asker.drafter([PROMPT], self.right)
        engine, runtime = engine_of(self.kind, drafter, DEPTH, refuse_cut=self.refuse_cut)
        self.engine: Engine = engine
        self.runtime: SimulatedRuntime = runtime

    def turn(self, prompt: list[int], *, draft: bool = False, stop: int | None = None) -> Turn:
        """Play a turn; it must say what the oracle says.

        Args:
            prompt: the whole history and the new text.
            draft: whether to speculate.
            stop: token that ends the answer.
        """
        expected = self.asker.says(prompt)
        if stop is not None:
            expected = expected[: expected.index(stop) + 1]
        before = self.runtime.tokens_evaluated
        generation = self.engine.run(
            self.asker.request(
                prompt,
                max_draft=None if draft else 0,
                stop_tokens=frozenset() if stop is None else frozenset({stop}),
            )
        )
        assert generation.tokens == expected
        return Turn(generation, self.runtime.tokens_evaluated - before)

    @property
    def held(self) -> int:
        """How many tokens the slot's memory holds, by the runtime's own account."""
        return self.runtime.length(0)


def stops_at(kind: str, *, partial: bool) -> int:
    """A token that ends the answer to PROMPT in a round of which it is the last decision.

    Args:
        kind: kind of memory.
        partial: whether the round ends in a partial acceptance, or inside an accepted draft.
    """
    chat = Chat(kind)
    text = chat.asker.says(PROMPT)
    for index, token in enumerate(text[8:], 8):
        if token in text[:index]:
            continue
        first = Chat(kind).turn(PROMPT, draft=True, stop=token)
        last = first.generation.summary.counts
        rejected = not often_right(len(PROMPT) + index)
        if rejected == partial and last.accepted > 0:
            return token
    raise AssertionError("no such place in this text; choose another prompt")


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("draft", [False, True], ids=["plain", "drafts"])
def test_the_next_turn_evaluates_only_what_is_new(kind: str, draft: bool) -> None:
    """Cases E1 and B10: the whole answer is reused, with speculation as without."""
    chat = Chat(kind)
    first = chat.turn(PROMPT, draft=draft)
    history = [*PROMPT, *first.generation.tokens]
    lost = len(history) - 1 - chat.held
    second = chat.turn([*history, *NEW])
    assert second.reused == second.generation.summary.cached_tokens == len(history) - 1 - lost
    if kind in FORKED and draft:
        assert lost <= MAX_PENDING + DEPTH
    else:
        assert lost == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partial", [False, True], ids=["inside a draft", "at a rejection"])
def test_an_answer_that_ends_in_a_draft_is_reused_as_a_whole(kind: str, partial: bool) -> None:
    """Case E1, C7: nothing behind the end stays in the memory, and all before it does."""
    stop = stops_at(kind, partial=partial)
    chat = Chat(kind)
    first = chat.turn(PROMPT, draft=True, stop=stop)
    history = [*PROMPT, *first.generation.tokens]
    held = chat.held
    assert held <= len(history) - 1
    second = chat.turn([*history, *NEW])
    assert second.reused == second.generation.summary.cached_tokens == held
    assert len(history) - 1 - held <= (MAX_PENDING + DEPTH if kind in FORKED else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("back", [1, 2, 3, 5])
def test_a_history_without_its_last_tokens_is_reused_as_far_as_the_memory_goes_back(
    kind: str, back: int
) -> None:
    """Case A8: the roll-back that the last round left behind does not stand in the way."""
    chat = Chat(kind)
    first = chat.turn(PROMPT, draft=True, stop=stops_at(kind, partial=True))
    history = [*PROMPT, *first.generation.tokens]
    held, kept = chat.held, len(history) - back
    second = chat.turn([*history[:-back], *NEW])
    assert second.reused == second.generation.summary.cached_tokens
    if kind in CUTTABLE:
        assert second.reused == kept
    elif kind in FORKED:
        assert second.reused == (held if kept >= held else 0)
        assert back > 2 or second.reused >= kept - MAX_PENDING - DEPTH
    else:
        # A snapshot belongs to the last pass alone; behind it stands the fork.
        assert second.reused <= kept
        assert back > 2 or second.reused >= len(PROMPT) - 1


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("tail", [0, 1, 2])
def test_a_prompt_that_ends_where_the_memory_does_says_the_right_first_token(
    kind: str, tail: int
) -> None:
    """Case A10: so many tokens of the prompt are new to the memory; at 0 it has to go back."""
    chat = Chat(kind)
    history = [*PROMPT, *chat.turn(PROMPT, draft=True).generation.tokens]
    held = chat.held
    prompt = [*history, *NEW][: held + tail]
    second = chat.turn(prompt)
    assert second.reused == second.generation.summary.cached_tokens
    if tail > 0:
        assert second.reused == held
    else:
        assert second.reused == held - 1 if kind in CUTTABLE else second.reused < held


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_exact_repeat_of_the_prompt_says_the_same(kind: str) -> None:
    chat = Chat(kind)
    first = chat.turn(PROMPT, draft=True)
    for draft in (False, True, False):
        second = chat.turn(PROMPT, draft=draft)
        assert second.generation.tokens == first.generation.tokens
        if not draft:
            assert second.reused == second.generation.summary.cached_tokens
            assert second.reused in (
                [len(PROMPT) - 1] if kind in CUTTABLE else [0, len(PROMPT) - 1]
            )


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("draft", [False, True], ids=["plain", "drafts"])
def test_an_unrelated_request_on_the_slot_starts_from_nothing(kind: str, draft: bool) -> None:
    """Case C7; and the first conversation comes back to nothing of the second's."""
    chat = Chat(kind)
    stop = stops_at(kind, partial=True) if kind != "rigid" else None
    chat.turn(PROMPT, draft=True, stop=stop)
    other = chat.turn(NEW, draft=draft)
    assert other.generation.summary.cached_tokens == 0
    again = chat.turn(PROMPT)
    assert again.reused == again.generation.summary.cached_tokens == 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_branches_of_a_conversation_never_mix(kind: str) -> None:
    """Case B3: branch A, branch B, then A again."""
    chat = Chat(kind)
    first = chat.turn(PROMPT, draft=True)
    history = [*PROMPT, *first.generation.tokens]
    for new in ([400, 401], [400, 402], [403], [400, 401], []):
        turn = chat.turn([*history, *new])
        assert turn.reused == turn.generation.summary.cached_tokens


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_prompt_goes_to_the_slot_that_knows_most_of_it(kind: str) -> None:
    asker = Asker(kind)
    engine, runtime = engine_of(kind, slots=3)
    starts = [[300 + number] * 20 for number in range(3)]
    histories = [
        [*start, *generation.tokens]
        for start, generation in zip(
            starts, run_all(engine, [asker.request(start) for start in starts]), strict=True
        )
    ]
    for history in reversed(histories):
        before = runtime.tokens_evaluated
        [generation] = run_all(engine, [asker.request([*history, *NEW])])
        assert generation.tokens == asker.says([*history, *NEW])
        answered = len(NEW) + len(generation.tokens)
        assert runtime.tokens_evaluated - before == answered
        assert generation.summary.cached_tokens == len(history) - 1


@pytest.mark.parametrize("kind", [*FORKED, "rigid"])
def test_what_counts_for_the_choice_of_a_slot_is_what_its_memory_can_go_back_to(kind: str) -> None:
    """Most of the prompt lies in a memory that can't go back; a little in one that need not."""
    asker = Asker(kind)
    engine, _ = engine_of(kind, slots=2)
    requests = [asker.request(PROMPT), asker.request(PROMPT[:5], max_tokens=1)]
    history = [*PROMPT, *run_all(engine, requests)[0].tokens]
    prompt = [*history[:-5], *NEW]
    [generation] = run_all(engine, [asker.request(prompt)])
    assert generation.tokens == asker.says(prompt)
    assert generation.summary.cached_tokens == 5


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_what_is_to_be_forgotten_is(kind: str) -> None:
    chat = Chat(kind)
    chat.turn(PROMPT, draft=True)
    chat.engine.forget()
    assert chat.held == 0
    assert chat.turn(PROMPT).reused == 0


@pytest.mark.parametrize("kind", KINDS)
def test_ten_turns_evaluate_each_token_about_once(kind: str) -> None:
    """A conversation costs its length, not its length times its turns."""
    chat = Chat(kind)
    history = [*PROMPT]
    before = chat.runtime.tokens_evaluated
    drafted = accepted = 0
    for number in range(10):
        turn = chat.turn([*history, 400 + number], draft=True)
        history += [400 + number, *turn.generation.tokens]
        drafted += turn.generation.summary.counts.drafted
        accepted += turn.generation.summary.counts.accepted
    evaluated = chat.runtime.tokens_evaluated - before
    assert evaluated <= len(history) + drafted + 10 * (MAX_PENDING + DEPTH)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_refused_way_back_between_turns_costs_what_was_cached_and_nothing_else(kind: str) -> None:
    """Case B9."""
    refused: list[int] = []

    def refuse(number: int) -> bool:
        refused.append(number)
        return True

    chat = Chat(kind, refuse_cut=refuse)
    history = [*PROMPT, *chat.turn(PROMPT).generation.tokens]
    second = chat.turn([*history[:-4], *NEW])
    assert second.reused == second.generation.summary.cached_tokens == 0
    assert bool(refused) == (kind in CUTTABLE)
    assert chat.held == len(second.generation.request.prompt) + len(second.generation.tokens) - 1
