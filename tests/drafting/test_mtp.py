"""`draft-mtp` with a toy head that is exact when it is fed right: one wrong row or one stale entry,
and a draft is rejected. So if all drafts are accepted on a target without noise, all was right.
"""

import random
from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import (
    GREEDY,
    Draft,
    Feed,
    InvalidParameterError,
    Rows,
    Sampling,
    Sequence,
)
from surefoot.drafting.base import Resources, make_drafter
from surefoot.drafting.mtp import FAILURES_ALLOWED, MOST_ROWS, MtpDrafter
from surefoot.drafting.settings import SpeculationSettings
from surefoot.drafting.trail import Trail
from surefoot.engine import Engine, Generation, GenerationState, Request
from surefoot.engine.cache import CacheSettings
from tests.drafting.texts import sequence_of
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.toy_head import Text, ToyHead, WatchedRuntime

VOCABULARY = 24
LENGTH = 40
PROMPTS = [[1, 2, 3, 4, 5], [9, 8, 7], [20, 21, 22, 23, 20, 21, 22, 23], [3, 3, 9, 1, 7, 7]]
WAYS = [GREEDY, Sampling(seed=3), Sampling(seed=5, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)]

every_kind = pytest.mark.parametrize("kind", KINDS)
every_way = pytest.mark.parametrize("sampling", WAYS, ids=["greedy", "sampled", "hot"])


@dataclass
class Bench:
    """An engine on a toy target, with a head for it."""

    kind: str
    slots: int = 1
    depth: int = 3
    off_by: int = 0
    head: dict[str, Any] = field(default_factory=dict)
    drafter: dict[str, Any] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    cache: CacheSettings = field(default_factory=CacheSettings)

    def __post_init__(self) -> None:
        like = {"vocabulary_size": VOCABULARY, "end_rate": 0.0}
        self.oracle = Oracle(self.kind, **like)
        self.runtime = WatchedRuntime(
            simulated(self.kind, slots=self.slots, **{**like, **self.target}), self.off_by
        )
        self.toy = ToyHead(self.runtime, self.oracle, **self.head)
        self.mtp = MtpDrafter(self.toy, **{"n_max": self.depth, **self.drafter})
        self.engine = Engine(self.runtime, self.mtp, max_draft=self.depth, cache=self.cache)

    def submit(
        self, prompt: Series[int], sampling: Sampling = GREEDY, length: int = LENGTH
    ) -> Generation:
        return self.engine.submit(
            Request(tuple(prompt), sampling, max_tokens=length), lambda _: None
        )

    def run(
        self, prompt: Series[int], sampling: Sampling = GREEDY, length: int = LENGTH
    ) -> Generation:
        generation = self.submit(prompt, sampling, length)
        self.finish()
        self.check(generation)
        return generation

    def finish(self) -> None:
        while not self.engine.idle:
            self.engine.step()

    def check(self, generation: Generation) -> None:
        """The text is the target's own."""
        request = generation.request
        assert generation.tokens == self.oracle.text(
            request.prompt, len(generation.tokens), request.sampling
        )


def all_accepted(generation: Generation) -> bool:
    counts = generation.summary.counts
    return counts.accepted == counts.drafted > 0


# What it proposes, and what that costs


@every_kind
@every_way
@pytest.mark.parametrize("depth", [1, 3, 7])
def test_an_exact_head_is_always_right(kind: str, sampling: Sampling, depth: int) -> None:
    """Case I6, and one pass of the head for each draft token."""
    bench = Bench(kind, depth=depth)
    for prompt in PROMPTS:
        bench.engine.forget()
        drafted, before = bench.mtp.draft_passes, bench.mtp.catch_up_passes
        generation = bench.run(prompt, sampling)
        counts = generation.summary.counts
        assert all_accepted(generation)
        assert counts.rounds == -(-LENGTH // (depth + 1))
        assert generation.summary.passes == counts.rounds
        assert bench.mtp.draft_passes - drafted == counts.drafted
        assert bench.mtp.catch_up_passes - before == 1
    assert bench.toy.passes == bench.mtp.draft_passes + bench.mtp.catch_up_passes
    assert bench.mtp.missing == bench.mtp.failures == 0


@every_kind
@pytest.mark.parametrize("off_by", [1, -1])
def test_rows_of_the_wrong_position_make_it_wrong(kind: str, off_by: int) -> None:
    """Case I6: nothing fails, there is just nothing accepted."""
    bench = Bench(kind, off_by=off_by)
    counts = bench.run(PROMPTS[0]).summary.counts
    assert counts.drafted > LENGTH
    assert (counts.acceptance or 0.0) < 0.2


@every_kind
def test_what_becomes_of_a_draft_makes_no_difference_to_the_next(kind: str) -> None:
    """A head that errs after some texts is right after all others, whatever was rejected before."""

    def errs(text: Text, logits: Rows) -> None:
        if sum(text) % 3 == 0:
            logits[:] = np.roll(logits, 1)

    bench = Bench(kind, depth=4, head={"spoil": errs})
    for prompt in PROMPTS:
        generation = bench.run(prompt)
        text = [*prompt, *bench.oracle.text(prompt, LENGTH + 8)]
        at, accepted, rounds = len(prompt), 0, 0
        while (room := len(prompt) + LENGTH - at) > 0:
            right = 0
            while right < min(4, room - 1) and sum(text[: at + right]) % 3:
                right += 1
            accepted, rounds = accepted + right, rounds + 1
            at += right + 1
        counts = generation.summary.counts
        if kind != "hybrid-snapshots":  # which shortens drafts by itself
            assert (counts.rounds, counts.accepted) == (rounds, accepted)
        assert counts.drafted > accepted > 0
        bench.engine.forget()


@every_kind
@every_way
def test_four_slots_share_passes_and_each_is_as_alone(kind: str, sampling: Sampling) -> None:
    """Cases J1, J2, J4."""
    together = Bench(kind, slots=4)
    generations = [together.submit(prompt, sampling) for prompt in PROMPTS]
    together.finish()
    longest = 0
    for prompt, generation in zip(PROMPTS, generations, strict=True):
        alone = Bench(kind).run(prompt, sampling)
        assert generation.tokens == alone.tokens
        assert all_accepted(generation)
        counts = generation.summary.counts
        assert counts.drafted == alone.summary.counts.drafted
        longest = max(longest, counts.drafted)
    total = sum(generation.summary.counts.drafted for generation in generations)
    assert together.mtp.draft_passes < total / 2
    assert together.mtp.draft_passes >= longest


def test_every_slot_drafts_alike() -> None:
    """Case J1: the same request in slot 0, 1, 2 and 3."""
    bench = Bench("hybrid", slots=4)
    generations = [bench.submit(PROMPTS[0]) for _ in range(4)]
    bench.finish()
    assert {generation.tokens[-1] for generation in generations} == {generations[0].tokens[-1]}
    assert len({generation.summary.counts.drafted for generation in generations}) == 1
    assert all(map(all_accepted, generations))


@pytest.mark.parametrize(("n_max", "n_min"), [(0, 0), (2, 0), (3, 3), (3, 4), (9, 2)])
def test_a_draft_is_not_longer_than_n_max_nor_shorter_than_n_min(n_max: int, n_min: int) -> None:
    bench = Bench("hybrid", depth=6, drafter={"n_max": n_max, "n_min": n_min})
    sequence = sequence_of(PROMPTS[0])
    bench.runtime.decode([Feed(0, PROMPTS[0][:-1], 0, 0)])
    (draft,) = bench.mtp.propose([(sequence, 6)])
    assert len(draft.tokens) == (min(n_max, 6) if n_min <= n_max else 0)
    (draft,) = bench.mtp.propose([(sequence, 1)])
    assert len(draft.tokens) == (1 if n_max and n_min <= 1 else 0)


def test_a_draft_ends_before_the_first_improbable_token() -> None:
    """Case K5."""

    def unsure(text: Text, logits: Rows) -> None:
        best = int(logits.argmax())
        logits[:] = 0.0
        logits[best] = 1.0 if len(text) % 5 == 0 else 20.0  # 11% or all but certain

    lengths = {}
    for p_min in (0.0, 0.5):
        bench = Bench("hybrid", head={"spoil": unsure}, drafter={"p_min": p_min, "n_max": 8})
        prompt = PROMPTS[0][:4]
        bench.runtime.decode([Feed(0, prompt[:-1], 0, 0)])
        sequence = sequence_of(prompt)
        sequence.sampling = GREEDY
        (draft,) = bench.mtp.propose([(sequence, 8)])
        lengths[p_min] = len(draft.tokens)
    # The token at position 5 follows a text of 5 tokens.
    assert lengths == {0.0: 8, 0.5: 1}


def test_tokens_that_the_target_does_not_know_are_never_drafted() -> None:
    def other(text: Text, logits: Rows) -> None:
        if len(text) == 6:
            logits[VOCABULARY - 1] = 1000.0

    for shared, expected in ((None, 3), (VOCABULARY - 1, 1)):
        bench = Bench("attention", head={"spoil": other}, drafter={"shared": shared})
        bench.runtime.decode([Feed(0, PROMPTS[0][:-1], 0, 0)])
        (draft,) = bench.mtp.propose([(sequence_of(PROMPTS[0]), 3)])
        assert len(draft.tokens) == expected


def test_nothing_is_drafted_behind_the_end_of_a_text() -> None:
    bench = Bench("hybrid", depth=8)
    text = bench.oracle.text(PROMPTS[0], 3)
    sequence = sequence_of(PROMPTS[0])
    sequence.sampling = GREEDY
    sequence.ending.stop_tokens = frozenset({text[2]} - set(text[:2]))
    bench.runtime.decode([Feed(0, PROMPTS[0][:-1], 0, 0)])
    (draft,) = bench.mtp.propose([(sequence, 8)])
    assert list(draft.tokens) == text


# What it keeps


@every_kind
@every_way
def test_the_next_turn_is_drafted_for_as_well(kind: str, sampling: Sampling) -> None:
    """Cases I2, I3: on hit and miss, drafts all the time and all of them right."""
    bench = Bench(kind)
    history = list(PROMPTS[2])
    for turn in range(5):
        generation = bench.run(history, sampling)
        assert all_accepted(generation)
        assert generation.summary.counts.drafted >= 0.7 * len(generation.tokens)
        history += [*generation.tokens, turn, 5]
    assert bench.mtp.missing == 0


@every_kind
def test_the_same_request_is_drafted_for_each_time(kind: str) -> None:
    """Case I2: cache on and off."""
    bench = Bench(kind)
    cold = bench.run(PROMPTS[2]).summary.counts.drafted
    for _ in range(4):
        generation = bench.run(PROMPTS[2])
        assert all_accepted(generation)
        assert generation.summary.counts.drafted >= 0.9 * cold
        bench.engine.forget()
        assert bench.run(PROMPTS[2]).summary.counts.drafted == cold


@every_kind
def test_another_text_in_the_slot_is_drafted_for_as_well(kind: str) -> None:
    """Case I1: another request, one with a common beginning, and the first again."""
    bench = Bench(kind)
    first = bench.run(PROMPTS[2])
    text = [*PROMPTS[2], *first.tokens]
    for prompt in (PROMPTS[0], PROMPTS[2], text[:20], [*text[:25], 0, 0, 1], text[:30], text):
        generation = bench.run(prompt)
        assert all_accepted(generation)
        assert generation.summary.counts.drafted >= 0.7 * LENGTH
    assert all_accepted(bench.run(PROMPTS[2]))


@every_kind
def test_a_cancelled_request_leaves_nothing_behind(kind: str) -> None:
    for rounds in range(1, 8):
        bench = Bench(kind)
        cancelled = bench.submit(PROMPTS[0])
        for _ in range(rounds):
            bench.engine.step()
        cancelled.cancelled = True
        for prompt in (PROMPTS[0], PROMPTS[1]):
            assert all_accepted(bench.run(prompt))
        assert cancelled.state is GenerationState.CANCELLED


@every_kind
def test_a_target_that_begins_again_is_followed(kind: str) -> None:
    """A failed pass of the target costs no entry of the head's, and no draft is wrong for it."""
    failing = {number for number in range(60) if number % 5 == 3}
    bench = Bench(kind, target={"fail_decode": failing})
    for prompt in PROMPTS:
        generation = bench.run(prompt)
        assert generation.summary.recoveries > 0
        assert all_accepted(generation)


@every_kind
@pytest.mark.parametrize("pause", [1, 5, 50, 200])
def test_drafts_after_a_pause_are_as_before(kind: str, pause: int) -> None:
    """Case I4."""
    bench = Bench(kind)
    generation = bench.submit(PROMPTS[0], length=pause + 60)
    for _ in range(4):
        bench.engine.step()
    sequence = generation.sequence
    assert sequence is not None
    before = sequence.counts.drafted
    sequence.max_draft = 0
    for _ in range(pause):
        bench.engine.step()
    assert sequence.counts.drafted == before
    caught_up = bench.mtp.catch_up_passes
    assert caught_up == 1 + pause // (MOST_ROWS + 1)
    sequence.max_draft = 3
    bench.finish()
    bench.check(generation)
    assert sequence.counts.drafted > before + 30
    assert all_accepted(generation)
    assert bench.mtp.catch_up_passes == caught_up


@every_kind
def test_rounds_with_other_drafters_drafts_are_followed(kind: str) -> None:
    """In a chain the head hears nothing of drafts that it did not make, right or wrong."""

    class Now(MtpDrafter):
        def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
            mine = super().propose(wanted)
            drafts = []
            for (sequence, most), draft in zip(wanted, mine, strict=True):
                at = len(sequence.committed)
                text = bench.oracle.text(sequence.committed, most)
                wrong = [(token + at) % VOCABULARY for token in text]
                drafts.append(draft if at % 3 else Draft(wrong if at % 2 else text, "other"))
            return drafts

    bench = Bench(kind)
    bench.mtp.close()
    bench.engine = Engine(bench.runtime, Now(bench.toy, n_max=3), max_draft=3)
    generation = bench.run(PROMPTS[1], length=120)
    counts = generation.summary.counts.by_drafter["draft-mtp"]
    assert counts.accepted == counts.drafted > 30


def test_a_long_prompt_is_fed_in_the_targets_chunks_and_no_wider_than_the_head_can() -> None:
    bench = Bench("hybrid", head={"batch_size": 32}, target={"batch_size": 50})
    prompt = [(7 * i) % VOCABULARY for i in range(140)]
    assert all_accepted(bench.run(prompt))
    # 139 tokens are absorbed in chunks of 50, 50 and 39; the first token has no row before it.
    assert bench.toy.widths[:6] == [17, 32, 18, 32, 7, 32]
    assert bench.mtp.catch_up_passes == 6


def test_a_sequence_that_was_not_watched_from_the_start_is_drafted_for_once_rows_are_known() -> (
    None
):
    bench = Bench("hybrid")
    bench.mtp.close()
    generation = bench.submit(PROMPTS[0])
    for _ in range(5):
        bench.engine.step()
    assert bench.mtp.missing == 5
    assert generation.summary.counts.drafted == 0
    bench.toy.watch(bench.mtp.observe)
    bench.finish()
    bench.check(generation)
    assert bench.mtp.missing == 6
    assert all_accepted(generation)


def test_tokens_of_a_draft_are_not_fed_before_they_are_verified() -> None:
    bench = Bench("attention")
    bench.runtime.decode([Feed(0, PROMPTS[0][:-1], 0, 0)])
    longest = [5] * (MOST_ROWS + 5)
    bench.runtime.decode([Feed(0, [5, *longest], 4, 1 + len(longest), len(longest))])
    assert bench.toy.widths == [3]
    bench.runtime.decode([Feed(0, [6], 5 + len(longest), 1)])
    assert bench.toy.widths == [3, 2 + len(longest)]


def test_what_hangs_on_other_tokens_is_forgotten() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)
    trail = Trail(0, 1)
    trail.see(Feed(0, [1, 2, 3, 4, 5, 6, 7, 8], 0, 8), rows)
    trail.keep()
    trail.absorbed(0, [1, 2, 3, 4, 5])
    sequence = sequence_of([1, 2, 3, 4, 5, 6, 7])
    trail.follow(sequence)
    assert trail.owed(0, 7) == [6]
    for text, entries, owed in (
        ([1, 2, 3, 4, 9, 9, 9, 9], [1, 2, 3], [4]),
        ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3], [4]),
        ([1, 7, 7], [], [1]),
    ):
        trail.follow(sequence_of(text))
        assert trail.entries == [entries]
        assert trail.owed(0, 8) == owed


def test_a_pass_over_other_tokens_makes_the_text_another_one() -> None:
    rows = np.zeros((4, 1), np.float32)
    trail = Trail(0, 1)
    sequence = sequence_of([1, 2, 3, 4])
    trail.see(Feed(0, [1, 2, 3, 4], 0, 0), rows)
    trail.keep()
    trail.follow(sequence)
    trail.see(Feed(0, [8, 9], 1, 0), rows[:2])
    trail.keep()
    assert trail.tokens_at([0, 1, 2]) == [1, 8, 9]
    trail.follow(sequence)
    assert trail.tokens_at([0, 1, 2, 3]) == [1, 2, 3, 4]
    assert trail.owed(0, 4) == [1]


def test_only_rows_that_are_needed_are_kept() -> None:
    bench = Bench("hybrid")
    bench.run([(7 * i) % VOCABULARY for i in range(140)], length=100)
    (trail,) = bench.mtp._trails.values()
    assert len(trail._rows) <= 5
    assert all(row.base is None for row in trail._rows.values())


def test_looking_at_a_long_text_costs_the_same_in_each_round() -> None:
    class Counted(list[int]):
        reads = 0

        def __getitem__(self, index: Any) -> Any:
            items = super().__getitem__(index)
            Counted.reads += len(items) if isinstance(index, slice) else 1
            return items

        def __iter__(self) -> Any:
            raise AssertionError("read as a whole")

    trail = Trail(0, 1)
    sequence = sequence_of(range(5000))
    rows = np.zeros((5000, 1), np.float32)
    trail.see(Feed(0, list(range(4999)), 0, 0), rows[:4999])
    trail.keep()
    trail.follow(sequence)
    sequence.committed = Counted(sequence.committed)
    for position in range(5000, 5040, 2):
        trail.see(Feed(0, [position - 1, position, 7], position - 1, 3), rows[:3])
        trail.keep()
        sequence.committed += [position, position + 1]
        trail.follow(sequence)
    assert Counted.reads < 500


# Several heads


@every_kind
@every_way
def test_several_heads_make_one_token_each(kind: str, sampling: Sampling) -> None:
    bench = Bench(kind, depth=5, head={"heads": 3})
    for prompt in PROMPTS:
        generation = bench.run(prompt, sampling)
        counts = generation.summary.counts
        assert all_accepted(generation)
        assert len(counts.drafted_by_position) == 3
    assert bench.mtp.failures == 0


def test_heads_that_were_not_needed_catch_up() -> None:
    bench = Bench("hybrid", head={"heads": 3})
    generation = bench.submit(PROMPTS[0], length=400)
    bench.engine.step()
    sequence = generation.sequence
    assert sequence is not None
    for depth in (1, 3, 2, 1, 3):
        sequence.max_draft = depth
        for _ in range(20):
            bench.engine.step()
    bench.finish()
    bench.check(generation)
    assert all_accepted(generation)


# What may go wrong


@every_kind
def test_a_failed_pass_of_the_head_costs_drafts_and_nothing_else(kind: str) -> None:
    for number in range(8):
        bench = Bench(kind, head={"fails": lambda call, number=number: call == number})
        generation = bench.run(PROMPTS[0])
        assert generation.summary.recoveries == 0
        assert bench.mtp.failures == 1
        # What it drafts from then on goes by fewer entries, all of them right.
        assert all_accepted(generation)


def test_a_head_that_keeps_failing_is_left_alone_for_that_request() -> None:
    bench = Bench("hybrid", head={"fails": lambda call: 3 <= call < 3 + FAILURES_ALLOWED + 1})
    generation = bench.run(PROMPTS[0])
    assert bench.mtp.failures == FAILURES_ALLOWED + 1
    assert generation.summary.counts.drafted <= 3
    assert all_accepted(bench.run(PROMPTS[1]))


def test_a_head_that_was_closed_costs_drafts_and_nothing_else() -> None:
    bench = Bench("hybrid")
    other = ToyHead(bench.runtime, bench.oracle)
    MtpDrafter(other)
    other.closed = True
    assert all_accepted(bench.run(PROMPTS[0]))


def test_failures_now_and_then_do_not_silence_it() -> None:
    bench = Bench("hybrid", head={"fails": lambda call: call % 5 == 3})
    generation = bench.run(PROMPTS[0], length=120)
    assert bench.mtp.failures > 2 * FAILURES_ALLOWED
    assert all_accepted(generation)
    assert generation.summary.counts.drafted > 50


def test_logits_that_are_no_numbers_cost_drafts_and_nothing_else() -> None:
    def broken(text: Text, logits: Rows) -> None:
        if len(text) == 11:
            logits[:] = np.nan

    bench = Bench("attention", head={"spoil": broken})
    assert all_accepted(bench.run(PROMPTS[0]))
    assert bench.mtp.failures > 0


def test_without_a_head_it_can_not_be_made() -> None:
    settings = SpeculationSettings(types=("draft-mtp",))
    with pytest.raises(InvalidParameterError, match="draft-mtp needs a model with a multi-token"):
        make_drafter(settings)
    bench = Bench("hybrid")
    drafter = make_drafter(settings, Resources(head=bench.toy))
    assert isinstance(drafter, MtpDrafter)
    assert drafter.name == "draft-mtp"


@settings(max_examples=60, print_blob=True, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    heads=st.sampled_from([1, 1, 3]),
    seed=st.integers(0, 2**32),
)
def test_whatever_happens_an_exact_head_is_never_wrong(kind: str, heads: int, seed: int) -> None:
    """Requests that share beginnings come and go, pause, are cancelled, and passes fail."""
    draw = random.Random(seed)
    fails = {call for call in range(400) if draw.random() < 0.03}
    bench = Bench(
        kind,
        slots=draw.randint(1, 3),
        depth=draw.randint(1, 5),
        head={"heads": heads, "fails": _now_and_then(draw.random())},
        target={
            "fail_decode": fails,
            "batch_size": draw.choice([64, 512]),
            "checkpoints": draw.choice([0, 2, 8]),
        },
        cache=CacheSettings(draw.choice([0, 5000]), draw.choice([0, 20_000]), every=16),
    )
    generations: list[Generation] = []
    for _ in range(6):
        texts = [[*g.request.prompt, *g.tokens] for g in generations] or [PROMPTS[0]]
        text = draw.choice(texts)
        prompt = [*text[: draw.randint(1, len(text))], *draw.choices(range(VOCABULARY), k=2)]
        generations.append(bench.submit(prompt[:90], draw.choice(WAYS), draw.randint(1, 30)))
        for _ in range(draw.randint(0, 12)):
            bench.engine.step()
            chosen = draw.choice(generations)
            if chosen.sequence is not None and draw.random() < 0.2:
                chosen.sequence.max_draft = draw.choice([0, 0, 1, 5])
            chosen.cancelled = chosen.cancelled or draw.random() < 0.03
    bench.finish()
    for generation in generations:
        bench.check(generation)
        counts = generation.summary.counts
        assert counts.accepted == counts.drafted


def _now_and_then(rate: float) -> Callable[[int], bool]:
    return lambda call: (call * 2654435761) % 1000 < 20 * rate
