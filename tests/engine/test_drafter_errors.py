"""A drafter that fails costs its drafts, and never text (case K7; theme C5)."""

from collections.abc import Sequence as Series

import pytest

from surefoot.decoding import Draft, Drafter, Sequence
from surefoot.drafting.chain import Chain
from surefoot.drafting.guarded import Guarded
from surefoot.engine import GenerationState
from tests.engine.playing import Asker, engine_of, run_all
from tests.support.kinds import KINDS

PROMPTS = [[300 + 7 * number, *range(260, 262 + 3 * number)] for number in range(4)]


class Broken:
    """Passes everything on to a good drafter, but for what it is told to break.

    Args:
        good: what to pass on to.
        part: which method fails; `short` is a list of drafts that lacks one.
        after: so many calls of it work.
        victim: first token of the sequences that it fails for; None for all of them.
    """

    name = "broken"

    def __init__(self, good: Drafter, part: str, after: int = 0, victim: int | None = None) -> None:
        self._good = good
        self._part = part
        self._left = after
        self._victim = victim
        self.failed = 0

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        self._break("propose", [sequence for sequence, _ in wanted])
        drafts = self._good.propose(wanted)
        return drafts[1:] if self._part == "short" else drafts

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        self._break("learn", [sequence])
        self._good.learn(sequence, draft, accepted)

    def forget(self, sequence: Sequence) -> None:
        self._break("forget", [sequence])
        self._good.forget(sequence)

    def _break(self, part: str, sequences: list[Sequence]) -> None:
        concerned = self._victim is None or any(s.committed[0] == self._victim for s in sequences)
        if part != self._part or not concerned:
            return
        if self._left:
            self._left -= 1
            return
        self.failed += 1
        raise RuntimeError("the drafter is broken")


@pytest.mark.parametrize("part", ["propose", "short", "learn", "forget"])
@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_that_fails_changes_no_text(kind: str, after: int, part: str) -> None:
    asker = Asker(kind)
    engine, _ = engine_of(kind, Broken(asker.drafter(PROMPTS), part, after), slots=3)
    for generation in run_all(engine, map(asker.request, PROMPTS)):
        assert generation.state is GenerationState.FINISHED
        assert generation.tokens == asker.says(generation.request.prompt)
        assert generation.summary.recoveries == 0


@pytest.mark.parametrize("part", ["propose", "short", "learn"])
def test_a_request_for_which_the_drafter_failed_goes_on_without_it(part: str) -> None:
    """It is not asked again, it is counted, and the log says why."""
    asker = Asker("hybrid")
    drafter = Broken(asker.drafter(PROMPTS), part)
    engine, _ = engine_of("hybrid", drafter, slots=1)
    generation = engine.run(asker.request(PROMPTS[3]))
    counts = generation.summary.counts
    assert counts.drafter_errors == 1
    assert counts.drafted == (4 if part == "learn" else 0)
    assert drafter.failed == (0 if part == "short" else 1)


def test_a_failure_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    asker = Asker("hybrid")
    engine, _ = engine_of("hybrid", Broken(asker.drafter(PROMPTS), "propose"))
    engine.run(asker.request(PROMPTS[0]))
    [record] = caplog.records
    assert "drafter broken failed" in record.getMessage()
    assert record.exc_info
    assert "the drafter is broken" in str(record.exc_info[1])


def test_only_the_request_that_it_fails_for_loses_its_drafts() -> None:
    """Though all are drafted for in one go. On attention no draft's length hangs on others."""
    asker = Asker("attention")
    broken = Broken(asker.drafter(PROMPTS), "propose", victim=PROMPTS[1][0])
    engine, _ = engine_of("attention", broken, slots=3)
    plain, _ = engine_of("attention", asker.drafter(PROMPTS), slots=3)
    generations = run_all(engine, map(asker.request, PROMPTS[:3]))
    expected = run_all(plain, map(asker.request, PROMPTS[:3]))
    assert [g.summary.counts.drafter_errors for g in generations] == [0, 1, 0]
    assert generations[1].summary.counts.drafted == 0
    for index in (0, 2):
        assert generations[index].summary.counts == expected[index].summary.counts
    # Once for all of them, once for the one by itself; and never again.
    assert broken.failed == 2


def test_the_next_request_is_drafted_for_again() -> None:
    asker = Asker("hybrid")
    engine, _ = engine_of("hybrid", Broken(asker.drafter(PROMPTS), "propose", victim=300))
    failed, other, again = (
        engine.run(asker.request(PROMPTS[number])).summary.counts for number in (0, 1, 0)
    )
    assert [failed.drafter_errors, other.drafter_errors, again.drafter_errors] == [1, 0, 1]
    assert other.drafted > 0


def test_a_failing_drafter_in_a_chain_yields_to_the_next() -> None:
    """Case K7."""
    asker = Asker("hybrid")
    good = asker.drafter(PROMPTS)
    chain = Chain([Broken(good, "propose", after=2), good])
    engine, _ = engine_of("hybrid", chain)
    counts = engine.run(asker.request(PROMPTS[3])).summary.counts
    plain, _ = engine_of("hybrid", good)
    expected = plain.run(asker.request(PROMPTS[3])).summary.counts
    assert counts.drafter_errors == 1
    assert (counts.drafted, counts.accepted) == (expected.drafted, expected.accepted)


def test_nothing_is_kept_of_a_sequence_that_has_ended() -> None:
    asker = Asker("hybrid")
    drafter = Guarded(Broken(asker.drafter(PROMPTS), "propose"))
    engine, _ = engine_of("hybrid", drafter)
    for prompt in PROMPTS:
        engine.run(asker.request(prompt))
    assert not drafter._given_up
