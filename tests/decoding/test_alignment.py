"""Widths that share a pass on recurrent memory: fewer graph runs, and never another text."""

import math
import random
from collections.abc import Sequence as Series
from itertools import pairwise

import pytest

from surefoot.decoding import Draft, Ending, Feed, Round, Sampling, Sequence
from surefoot.decoding.alignment import RUN_PRICE, Part, aligned, chances
from surefoot.decoding.counts import Counts
from surefoot.runtime.pieces import Cutting
from surefoot.runtime.simulated import SimulatedRuntime
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FunctionDrafter
from tests.support.play import begin

VOCABULARY = 48
HYBRID = Cutting(most=512, recurrent=True, consecutive=False, snapshots=0)
ATTENTION = Cutting(most=512, recurrent=False, consecutive=False, snapshots=0)
RECURRENT_KINDS = [kind for kind in KINDS if "recurrent" in kind or "hybrid" in kind]


def part(slot: int, pending: int, drafted: int, chance: float = 0.8, fixed: bool = False) -> Part:
    return Part(slot, pending, [chance ** (i + 1) for i in range(drafted)], fixed)


def worth(parts: Series[Part], kept: Series[int], cutting: Cutting) -> float:
    """Expected tokens for what the pass costs."""
    widths = {p.sequence: p.pending + length for p, length in zip(parts, kept, strict=True)}
    tokens = sum(1 + sum(p.chances[:length]) for p, length in zip(parts, kept, strict=True))
    return float(tokens / (RUN_PRICE * cutting.runs(widths) + sum(widths.values())))


def test_a_draft_one_token_longer_than_the_others_is_cut() -> None:
    assert aligned([part(0, 1, 4), part(1, 1, 3), part(2, 1, 3)], HYBRID.runs) == [3, 3, 3]


def test_pending_tokens_count_for_the_width() -> None:
    assert aligned([part(0, 4, 3), part(1, 1, 4)], HYBRID.runs) == [1, 4]


def test_a_long_draft_that_will_be_accepted_is_worth_a_run_of_its_own() -> None:
    assert aligned([part(0, 1, 16, chance=0.99), part(1, 1, 0)], HYBRID.runs) == [16, 0]
    assert aligned([part(0, 1, 16, chance=0.30), part(1, 1, 0)], HYBRID.runs) == [0, 0]


def test_what_is_pending_is_never_cut() -> None:
    assert aligned([part(0, 6, 2), part(1, 1, 1)], HYBRID.runs) == [2, 1]


def test_one_that_owes_more_than_others_have_catches_up_if_its_draft_is_a_poor_one() -> None:
    assert aligned([part(0, 2, 6, chance=0.1), part(1, 1, 0)], HYBRID.runs) == [0, 0]
    assert aligned([part(0, 2, 6, chance=0.9), part(1, 1, 0)], HYBRID.runs) == [6, 0]


def test_attention_has_no_reason_to_cut() -> None:
    parts = [part(0, 1, 16, chance=0.1), part(1, 1, 0), part(2, 3, 7, chance=0.1)]
    assert aligned(parts, ATTENTION.runs) == [16, 0, 7]


def test_random_passes_are_never_worth_less_for_being_aligned() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draws = random.Random(seed)
    saved = 0
    for _ in range(500):
        cutting = Cutting(
            most=draws.choice([16, 512]),
            recurrent=True,
            consecutive=draws.random() < 0.5,
            snapshots=draws.choice([0, 0, 2]),
        )
        parts = [
            part(
                slot,
                draws.choice([1, 1, 1, 2, 5]),
                draws.choice([0, draws.randint(0, 8)]),
                chance=draws.choice([0.3, 0.8, 0.98]),
                fixed=draws.random() < 0.2,
            )
            for slot in sorted(draws.sample(range(8), draws.randint(1, 6)))
        ]
        kept, whole = aligned(parts, cutting.runs), [len(p.chances) for p in parts]
        assert all(0 <= some <= every for some, every in zip(kept, whole, strict=True))
        for one, length in zip(parts, kept, strict=True):
            assert not one.fixed or length == len(one.chances)
        assert worth(parts, kept, cutting) >= worth(parts, whole, cutting)
        widths = [
            cutting.runs({p.sequence: p.pending + n for p, n in zip(parts, lengths, strict=True)})
            for lengths in (kept, whole)
        ]
        catching_up = [p for p, n in zip(parts, kept, strict=True) if p.pending > 1 and n == 0]
        assert widths[0] < widths[1] or kept == whole or catching_up
        assert widths[0] <= widths[1]
        saved += widths[1] - widths[0]
    assert saved > 100


def test_chances_follow_what_was_counted() -> None:
    """Hopeful at first, and never rising along a draft."""
    counts = Counts()
    assert chances(counts, 3) == pytest.approx([0.9, 0.81, 0.729])
    for accepted in [0, 0, 1, 0] * 20:
        counts.add_round(4, accepted, rolled_back=True)
    found = chances(counts, 6)
    assert found[0] == pytest.approx(0.25, abs=0.05)
    assert found[1] < 0.06
    assert all(later <= earlier for earlier, later in pairwise(found))


@pytest.mark.parametrize("kind", KINDS)
def test_the_simulated_runtime_counts_graph_runs_as_libllama_does(kind: str) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draws = random.Random(seed)
    runtime = simulated(kind, slots=6, batch_size=64, micro_batch_size=32)
    settings = KINDS[kind]
    cutting = Cutting(
        most=32,
        recurrent=settings["memory"] in ("recurrent", "hybrid"),
        consecutive=settings["memory"] == "recurrent",
        snapshots=settings.get("snapshots", 0),
    )
    for _ in range(50):
        ids = draws.sample(range(6), draws.randint(1, 6))
        widths = {slot: draws.randint(1, 10) for slot in ids}
        before = runtime.graph_runs
        runtime.decode([Feed(slot, [1] * width, 0, 0) for slot, width in widths.items()])
        expected = cutting.runs(dict(sorted(widths.items())))
        assert runtime.graph_runs - before == runtime.graph_runs_of(widths) == expected
        for slot in ids:
            runtime.drop(slot)


# In rounds


def sequences_of(
    runtime: SimulatedRuntime, prompts: Series[Series[int]], ways: Series[Sampling]
) -> list[Sequence]:
    slots = len(prompts)
    return [
        begin(
            runtime,
            prompt,
            slot=slot,
            slots=slots,
            sampling=ways[slot],
            ending=Ending(runtime.tokenizer.end_of_generation, max_tokens=60),
        )
        for slot, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_aligned_rounds_say_the_same_texts(kind: str, temperature: float) -> None:
    """Whatever the widths are: one pass a round, a token at least for everybody, the right text."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draws = random.Random(seed)
    prompts = [[draws.randrange(VOCABULARY) for _ in range(draws.randint(1, 9))] for _ in range(4)]
    ways = [Sampling(seed=draws.randrange(1 << 30), temperature=temperature) for _ in prompts]
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    texts = [
        [*prompt, *oracle.text(prompt, 80, way)] for prompt, way in zip(prompts, ways, strict=True)
    ]
    ends = [
        [*prompt, *oracle.text_to_end(prompt, 60, way)]
        for prompt, way in zip(prompts, ways, strict=True)
    ]

    def draft(sequence: Sequence, most: int) -> list[int]:
        start = len(sequence.committed)
        length = draws.randint(0, min(6, most))
        right = texts[sequence.memory.id][start : start + length]
        return [token if draws.random() < 0.7 else (token + 1) % VOCABULARY for token in right]

    runtime = simulated(kind, vocabulary_size=VOCABULARY, slots=4)
    live = sequences = sequences_of(runtime, prompts, ways)
    round_ = Round(runtime, FunctionDrafter(draft), runs=runtime.graph_runs_of)
    while live := [sequence for sequence in live if sequence.finish is None]:
        passes, lengths = runtime.passes, [len(sequence.committed) for sequence in live]
        outcomes = round_.play(live)
        assert runtime.passes == passes + 1
        assert all(outcome.tokens for outcome in outcomes)
        assert all(
            len(sequence.committed) > length for sequence, length in zip(live, lengths, strict=True)
        )
    assert [sequence.committed for sequence in sequences] == ends


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("right", [2, 4])
def test_aligned_rounds_bring_more_for_what_they_cost(kind: str, right: int) -> None:
    """Where widths matter; elsewhere nothing changes. Each `right`-th position is drafted wrong."""
    prompts = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]]
    ways = [Sampling(seed=slot, temperature=1.2) for slot in range(4)]
    oracle = Oracle(kind, vocabulary_size=VOCABULARY, end_rate=0)
    texts = {
        slot: [*prompts[slot], *oracle.text(prompts[slot], 320, ways[slot])] for slot in range(4)
    }

    def draft(sequence: Sequence, most: int) -> list[int]:
        start = len(sequence.committed)
        length = min(most, (5 * start + sequence.memory.id) % 7)
        text = texts[sequence.memory.id][start : start + length]
        return [t if at % right else (t + 1) % VOCABULARY for at, t in enumerate(text, start)]

    runs, worth = {}, {}
    for aligning in (False, True):
        runtime = simulated(kind, vocabulary_size=VOCABULARY, end_rate=0, slots=4)
        sequences = sequences_of(runtime, prompts, ways)
        for sequence in sequences:
            sequence.ending = Ending()
        round_ = Round(
            runtime, FunctionDrafter(draft), runs=runtime.graph_runs_of if aligning else None
        )
        before = runtime.graph_runs, runtime.tokens_evaluated
        for _ in range(64):
            round_.play(sequences)
        runs[aligning] = runtime.graph_runs - before[0]
        cost = RUN_PRICE * runs[aligning] + runtime.tokens_evaluated - before[1]
        worth[aligning] = sum(sequence.generated for sequence in sequences) / cost
    if kind in RECURRENT_KINDS:
        assert runs[True] < runs[False]
        assert worth[True] > worth[False]
    else:
        assert runs == {False: 64, True: 64}
        assert worth[True] == worth[False]


class Heard(FunctionDrafter):
    """Drafts for each slot a length of its own, and keeps how long the judged drafts were."""

    def __init__(self, lengths: Series[int]) -> None:
        super().__init__(lambda sequence, most: [1] * min(most, lengths[sequence.memory.id]))
        self.judged: dict[int, set[int]] = {}

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:  # noqa: ARG002
        self.judged.setdefault(sequence.memory.id, set()).add(len(draft.tokens))


def test_drafts_for_rejection_are_never_cut_and_others_come_to_their_length() -> None:
    """What was drawn must be judged, else the text's law changes; see docs/exactness.md."""
    runtime = simulated("recurrent", vocabulary_size=VOCABULARY, slots=3)
    ways = [Sampling(seed=slot, temperature=1.0) for slot in range(3)]
    sequences = sequences_of(runtime, [[1], [2], [3]], ways)
    sequences[1].rule = "rejection"
    for sequence in sequences:
        sequence.ending = Ending(max_tokens=200)
        sequence.counts.rounds = 1  # not one of the rounds in which nothing is cut
    drafter = Heard([2, 3, 5])
    round_ = Round(runtime, drafter, runs=runtime.graph_runs_of)
    for _ in range(30):
        round_.play(sequences)
    assert drafter.judged[1] == {3}
    assert 3 in drafter.judged[2]


def test_each_sequence_is_tried_with_its_whole_draft_now_and_then() -> None:
    """Else a draft that was cut for being wrong would never be seen to be right."""
    runtime = simulated("recurrent", vocabulary_size=VOCABULARY, slots=2)
    ways = [Sampling(seed=slot, logit_bias=((1, -math.inf),)) for slot in range(2)]
    sequences = sequences_of(runtime, [[1], [2]], ways)
    for sequence in sequences:
        sequence.ending = Ending(max_tokens=500)
    drafter = Heard([6, 0])
    round_ = Round(runtime, drafter, runs=runtime.graph_runs_of)
    whole = []
    for number in range(100):
        drafter.judged.clear()
        round_.play(sequences)
        if 6 in drafter.judged.get(0, set()):
            whole.append(number)
    assert [number for number in whole if number > 20] == [32, 64, 96]
