"""The watchdog: speculation that does not serve a request is taken from it, with the reason.

Cases A16 (acceptance 0 for hours while the text loops) and C3 (restores without progress).
"""

import random
from collections.abc import Mapping
from collections.abc import Sequence as Series
from typing import Any

import pytest
from numpy.typing import NDArray

from surefoot.decoding import DecodeError, Feed, Played, Sampling, Sequence
from surefoot.engine import PATIENCE, Engine, GenerationState, Observer
from surefoot.engine.slot import Slot
from surefoot.engine.watchdog import LONGEST_PART, PATIENCE_IN_CIRCLES, repeated_part
from surefoot.runtime.simulated import SimulatedRuntime
from tests.engine.playing import LANGUAGE, VOCABULARY, Asker, oracle_of, run_all, runtime_of
from tests.support.kinds import KINDS
from tests.support.planned_drafters import FunctionDrafter

PROMPT = [300, 301, 302]
STUCK = 350
LOOPING = Sampling(temperature=0.0, logit_bias=((STUCK, 1000.0),))
DRAFTS_TO_CIRCLES = 2 * PATIENCE_IN_CIRCLES
"""So many drafts it takes until there are enough tokens to go in circles."""


class Notes(Observer):
    """Keeps what is said of sequences."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []

    def noted(self, sequence: Sequence, event: str, facts: Mapping[str, Any]) -> None:  # noqa: ARG002
        self.all.append((event, dict(facts)))


def wrong(sequence: Sequence, most: int) -> list[int]:
    """A token that is never chosen."""
    return [sequence.committed[0] - 200] * most


class Spellbound(SimulatedRuntime):
    """A hybrid whose memory says the same word for ever, until it is dropped after a pass."""

    said_noise = 0.0
    bound = True

    @property
    def logit_noise(self) -> float:
        return self.said_noise

    def decode(self, feeds: Series[Feed]) -> list[NDArray[Any]]:
        rows = [given.copy() for given in super().decode(feeds)]
        if self.bound:
            for given in rows:
                given[:, STUCK] = 1000
        return rows

    def drop(self, sequence: int) -> None:
        self.bound &= not self.passes
        super().drop(sequence)


class PlainOnly(SimulatedRuntime):
    """A hybrid that fails in every pass with a draft in it."""

    def decode(self, feeds: Series[Feed]) -> list[NDArray[Any]]:
        if any(feed.tentative for feed in feeds):
            raise DecodeError("this device can't compute drafts")
        return super().decode(feeds)


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_without_acceptance_end_a_requests_speculation_and_nobody_elses(kind: str) -> None:
    asker = Asker(kind, length=60)
    helped = [310, 311]
    knowing = asker.drafter([helped], right=lambda _: True)

    def draft(sequence: Sequence, most: int) -> Series[int]:
        return (
            wrong(sequence, most) if sequence.committed[0] == 300 else knowing.draft(sequence, most)
        )

    engine = Engine(runtime_of(kind, slots=2), FunctionDrafter(draft), max_draft=3, patience=10)
    given_up, other = run_all(engine, [asker.request(PROMPT), asker.request(helped)])
    counts = given_up.summary.counts
    assert given_up.tokens == asker.says(PROMPT)
    assert (counts.drafted_by_position[0], counts.accepted) == (10, 0)
    assert counts.speculation_off == "no draft token was accepted in 10 rounds in a row"
    assert engine.totals.speculation_off == {"no acceptance": 1}
    assert other.tokens == asker.says(helped)
    assert other.summary.counts.speculation_off == ""
    assert other.summary.counts.accepted > 30
    assert engine.totals.rebuilds == {}


def test_one_accepted_token_begins_the_count_anew() -> None:
    asker = Asker("hybrid", length=100)
    text = asker.beyond(PROMPT)

    def draft(sequence: Sequence, most: int) -> Series[int]:
        at = len(sequence.committed)
        return [text[at]] if sequence.counts.rounds % 10 == 9 else wrong(sequence, most)

    engine = Engine(runtime_of("hybrid"), FunctionDrafter(draft), max_draft=3, patience=10)
    [generation] = run_all(engine, [asker.request(PROMPT)])
    assert generation.summary.counts.speculation_off == ""
    assert generation.summary.counts.accepted == generation.summary.counts.rounds // 10


def test_rounds_without_a_draft_do_not_count() -> None:
    asker = Asker("hybrid", length=100)

    def draft(sequence: Sequence, most: int) -> Series[int]:
        return wrong(sequence, most) if sequence.counts.rounds % 12 == 0 else []

    engine = Engine(runtime_of("hybrid"), FunctionDrafter(draft), max_draft=3, patience=9)
    [generation] = run_all(engine, [asker.request(PROMPT)])
    assert generation.summary.counts.by_drafter["test"].drafts == 9
    assert generation.summary.counts.speculation_off
    assert generation.summary.counts.rounds == 100


@pytest.mark.parametrize("seed", range(3))
def test_hard_prose_is_left_alone(seed: int) -> None:
    """One round in twenty accepts something, at random, for more than a thousand rounds."""
    draws = random.Random(seed)
    prose = Sampling(seed=seed, temperature=0.7)
    asker = Asker("attention", length=1700, sampling=prose, end_rate=0)
    text = asker.beyond(PROMPT)

    def draft(sequence: Sequence, most: int) -> Series[int]:
        lucky = draws.random() < 1 / 20
        return [text[len(sequence.committed)]] if lucky else wrong(sequence, most)

    runtime = runtime_of("attention", end_rate=0)
    engine = Engine(runtime, FunctionDrafter(draft), max_draft=1)
    [generation] = run_all(engine, [asker.request(PROMPT)])
    assert generation.summary.counts.rounds > 5 * PATIENCE
    assert generation.summary.counts.speculation_off == "", f"seed {seed}"


@pytest.mark.parametrize("kind", KINDS)
def test_circles_without_acceptance_have_the_memory_built_again_once(kind: str) -> None:
    """Case A16. Here the memory is right, so the next choice is the same."""
    runtime = runtime_of(kind)
    engine = Engine(runtime, FunctionDrafter(wrong), max_draft=3)
    notes = Notes()
    engine.observe(notes)
    asker = Asker(kind, length=80, sampling=LOOPING)
    [generation] = run_all(engine, [asker.request(PROMPT)])
    summary = generation.summary
    assert generation.tokens == [STUCK] * 80
    assert summary.counts.drafted == 3 * DRAFTS_TO_CIRCLES
    assert "the text repeats its last 1 tokens" in summary.counts.speculation_off
    assert engine.totals.speculation_off == {"circles": 1}
    assert engine.totals.rebuilds == {"same": 1}
    # All tokens but the last are absorbed again, once, and one pass asks the former memory.
    (first, _), (second, facts) = notes.all
    assert (first, second) == ("speculation off", "memory rebuilt")
    position = facts["position"]
    assert facts == {"outcome": "same", "position": position, "before": STUCK, "after": STUCK}
    assert position >= len(PROMPT) + DRAFTS_TO_CIRCLES
    assert summary.prefilled_tokens == len(PROMPT) - 1 + position - 1
    assert runtime.passes == summary.counts.rounds + 2 + 1
    assert summary.recoveries == 0


@pytest.mark.parametrize(("noise", "outcome"), [(0.0, "different"), (1e6, "near tie")])
def test_a_memory_that_was_wrong_is_found_out_and_mended(noise: float, outcome: str) -> None:
    runtime = Spellbound("hybrid", **LANGUAGE)
    runtime.said_noise = noise
    engine = Engine(runtime, FunctionDrafter(wrong), max_draft=3)
    notes = Notes()
    engine.observe(notes)
    [generation] = run_all(engine, [Asker("hybrid", length=60).request(PROMPT)])
    assert engine.totals.rebuilds == {outcome: 1}
    event, facts = notes.all[1]
    spoilt = [*PROMPT, *[STUCK] * (facts["position"] - len(PROMPT))]
    text = oracle_of("hybrid").text(spoilt, 60 + len(PROMPT) - len(spoilt))
    assert [*PROMPT, *generation.tokens] == [*spoilt, *text]
    assert event == "memory rebuilt"
    assert (facts["outcome"], facts["before"], facts["after"]) == (outcome, STUCK, text[0])


def test_a_request_whose_passes_fail_with_drafts_gets_a_plain_try_before_it_is_given_up() -> None:
    """Case C3: nothing committed over restores, so the slot decodes one token at a time."""
    asker = Asker("hybrid")
    engine = Engine(PlainOnly("hybrid", **LANGUAGE), FunctionDrafter(wrong), max_draft=3)
    [generation] = run_all(engine, [asker.request(PROMPT)])
    assert generation.state is GenerationState.FINISHED
    assert generation.tokens == asker.says(PROMPT)
    assert generation.summary.recoveries == 2
    assert engine.totals.speculation_off == {"failed passes": 1}
    reason = "2 passes in a row failed (this device can't compute drafts)"
    assert generation.summary.counts.speculation_off == reason


def test_an_observer_that_fails_is_switched_off_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Observer):
        calls = 0

        def played(self, slots: Series[Slot], parts: Series[Played]) -> None:  # noqa: ARG002
            self.calls += 1
            raise RuntimeError("out of ink")

    asker = Asker("hybrid")
    engine = Engine(runtime_of("hybrid"), asker.drafter([PROMPT]))
    broken = Broken()
    engine.observe(broken)
    [generation] = run_all(engine, [asker.request(PROMPT)])
    assert generation.tokens == asker.says(PROMPT)
    assert broken.calls == 1
    assert "Broken has failed and is switched off" in caplog.text


@pytest.mark.parametrize("part", [1, 2, 7, 16, LONGEST_PART])
def test_the_repeated_part_is_found(part: int) -> None:
    draws = random.Random(part)
    block = draws.sample(range(VOCABULARY), part)
    start = [VOCABULARY + 1] * 3 + [VOCABULARY + 2]
    assert repeated_part([*start, *block * 32][: 4 + max(4 * part, 32)]) == part
    assert repeated_part([*start, *block * 3]) == 0
    assert repeated_part([*block * 32, VOCABULARY + 1]) == 0


def test_a_text_of_all_different_tokens_repeats_nothing() -> None:
    assert repeated_part([]) == 0
    assert repeated_part(range(1000)) == 0
