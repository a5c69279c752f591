"""Promise 1 and 2: every round commits a token for every sequence, in exactly one forward pass.

Whatever the logits are: an adversary picks them at every pass, anew for the same position.
"""

import random
from collections.abc import Hashable
from collections.abc import Sequence as Series
from functools import cache, partial
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import Ending, Feed, Outcome, Round, Sequence
from surefoot.decoding.round import MAX_PENDING
from tests.support.adversary import AdversarialTarget, Pick, agreeing_up_to
from tests.support.explore import Choices, explore
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FunctionDrafter
from tests.support.play import begin

PROMPT = [0, 1]


def exhaustive_pick(choices: Choices, tokens: int) -> Pick:
    """Every way to fill the rows that can matter: those up to the first disagreement."""
    picked: list[int] = []

    def pick(feed: Feed, index: int) -> int:
        if index == len(feed.tokens) - feed.outputs:
            picked.clear()
        if not agreeing_up_to(feed, index, picked):
            return 0
        picked.append(choices.pick(tokens))
        return picked[-1]

    return pick


def exhaustive_draft(choices: Choices, tokens: int, _: Sequence, most: int) -> list[int]:
    """Every draft of every length."""
    return [choices.pick(tokens) for _ in range(choices.pick(most + 1))]


def check_round(outcomes: Series[Outcome], before: Series[int]) -> None:
    """What must hold after any round."""
    for outcome, length in zip(outcomes, before, strict=True):
        sequence = outcome.sequence
        assert len(outcome.tokens) >= 1
        assert sequence.committed[length:] == outcome.tokens
        assert 0 <= outcome.accepted <= min(outcome.drafted, len(outcome.tokens))
        assert sequence.state_len < len(sequence.committed)
        assert len(sequence.pending) <= MAX_PENDING + 1 + sequence.max_draft


@pytest.mark.parametrize(
    ("kind", "tokens", "depth", "rounds", "ends"),
    [
        *(
            (kind, *bounds)
            for kind in KINDS
            for bounds in [(2, 2, 2, False), (2, 1, 4, False), (3, 2, 2, True)]
        ),
        ("hybrid", 2, 2, 3, False),
    ],
)
def test_every_round_commits_whatever_the_logits_exhaustively(
    kind: str, tokens: int, depth: int, rounds: int, ends: bool
) -> None:
    oracle = Oracle(kind, vocabulary_size=4)

    @cache
    def expected(absorbed: tuple[int, ...]) -> Hashable:
        return oracle.state(absorbed)

    runtime = simulated(kind, vocabulary_size=4)
    ending = Ending(frozenset({tokens - 1}) if ends else frozenset())
    plays = 0
    for choices in explore():
        target = AdversarialTarget(runtime, exhaustive_pick(choices, tokens))
        drafter = FunctionDrafter(partial(exhaustive_draft, choices, tokens))
        sequence = begin(target, PROMPT, ending=ending, max_draft=depth)
        round_ = Round(target, drafter)
        for _ in range(rounds):
            passes, length = runtime.passes, len(sequence.committed)
            outcomes = round_.play([sequence])
            check_round(outcomes, [length])
            assert runtime.passes == passes + 1
            absorbed = tuple(sequence.committed[: sequence.state_len])
            assert runtime.state(sequence.memory.id) == expected(absorbed)
            if sequence.finish is not None:
                break
        sequence.memory.clear()
        plays += 1
    print(f"{plays} plays")
    assert plays > 100


@settings(max_examples=150)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 2**32),
    sequences=st.integers(1, 4),
    depth=st.integers(0, 12),
    agreement=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
)
def test_every_round_commits_for_every_sequence_whatever_the_logits(
    kind: str, seed: int, sequences: int, depth: int, agreement: float
) -> None:
    draws = random.Random(seed)

    def pick(feed: Feed, index: int) -> int:
        if index + 1 < len(feed.tokens) and draws.random() < agreement:
            return feed.tokens[index + 1]
        return draws.randrange(3)

    runtime = simulated(kind, vocabulary_size=4, slots=sequences)
    oracle = Oracle(kind, vocabulary_size=4)
    target = AdversarialTarget(runtime, pick)
    drafter = FunctionDrafter(
        lambda _, most: [draws.randrange(3) for _ in range(draws.randint(0, most))]
    )
    live = [
        begin(
            target,
            [draws.randrange(3) for _ in range(draws.randint(1, 5))],
            slot=slot,
            slots=sequences,
            max_draft=depth,
        )
        for slot in range(sequences)
    ]
    prefill = runtime.passes
    round_ = Round(target, drafter)
    for played in range(1, 16):
        before = [len(sequence.committed) for sequence in live]
        check_round(round_.play(live), before)
        assert runtime.passes == prefill + played
        assert [sequence.counts.rounds for sequence in live] == [played] * sequences
    for sequence in live:
        absorbed = sequence.committed[: sequence.state_len]
        assert runtime.state(sequence.memory.id) == oracle.state(absorbed)


@pytest.mark.parametrize("kind", KINDS)
def test_no_fork_is_made_in_a_round_with_an_empty_draft(kind: str) -> None:
    """Case D8: plain rounds pay nothing for speculation."""
    runtime = simulated(kind)
    sequence = begin(runtime, PROMPT)
    round_ = Round(runtime, FunctionDrafter(lambda *_: []))
    with (
        patch.object(runtime, "fork", side_effect=AssertionError("forked")),
        patch.object(runtime, "cut", side_effect=AssertionError("cut")),
    ):
        for _ in range(10):
            round_.play([sequence])
    assert sequence.generated == 10


def test_memory_that_cannot_go_back_is_never_given_a_draft() -> None:
    runtime = simulated("rigid")
    sequence = begin(runtime, PROMPT)
    drafter = FunctionDrafter(lambda *_: pytest.fail("asked for a draft"))
    for _ in range(10):
        outcome = Round(runtime, drafter).play([sequence])[0]
        assert (len(outcome.tokens), outcome.drafted) == (1, 0)


def test_a_draft_is_cut_at_the_first_token_that_the_target_does_not_know() -> None:
    runtime = simulated("attention", vocabulary_size=8)
    sequence = begin(runtime, PROMPT)
    drafter = FunctionDrafter(lambda *_: [1, 2, 8, 3])
    assert Round(runtime, drafter).play([sequence])[0].drafted == 2


def test_a_draft_longer_than_asked_for_is_cut() -> None:
    runtime = simulated("hybrid")
    sequence = begin(runtime, PROMPT, max_draft=3)
    drafter = FunctionDrafter(lambda *_: [1] * 50)
    assert Round(runtime, drafter).play([sequence])[0].drafted == 3


def test_pending_tokens_stop_drafts_before_they_make_passes_ever_wider() -> None:
    """Every draft is accepted but for its last token, so forked memory gives all of it back."""
    kind = "recurrent"
    text = [*PROMPT, *Oracle(kind).text(PROMPT, 300)]
    runtime = simulated(kind)
    sequence = begin(runtime, PROMPT, max_draft=5)

    def all_but_the_last(sequence: Sequence, most: int) -> list[int]:
        start = len(sequence.committed)
        draft = text[start : start + most]
        return [*draft[:-1], (draft[-1] + 1) % runtime.vocabulary_size]

    round_ = Round(runtime, FunctionDrafter(all_but_the_last))
    widest, plain = 0, 0
    for _ in range(40):
        width = len(sequence.pending)
        outcome = round_.play([sequence])[0]
        widest = max(widest, width + outcome.drafted)
        plain += outcome.drafted == 0
        assert (len(sequence.pending) == 1) == (outcome.drafted == 0)
    assert sequence.committed == text[: len(sequence.committed)]
    assert widest <= MAX_PENDING + 5
    assert plain > 0
