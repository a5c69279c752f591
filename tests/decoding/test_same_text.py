"""Same seed, same text: exactly, with and without speculation, on every kind of memory (theme F).

On the simulated runtime without noise, logits are bit-equal at any width, so nothing may differ.
"""

from collections.abc import Callable

import pytest

from surefoot.decoding import Drafter, Ending, Sampling
from surefoot.drafting.chain import Chain
from surefoot.drafting.ngram_cache import NgramCache
from surefoot.drafting.ngram_counts import NgramCounts
from surefoot.drafting.ngram_map_k import NgramMapK
from surefoot.drafting.ngram_map_k4v import NgramMapK4V
from surefoot.drafting.ngram_mod import NgramMod
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.drafting.scripted import ScriptedDrafter
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FailingDrafter, OracleDrafter, RandomDrafter
from tests.support.play import begin, play_out

VOCABULARY = 24
LENGTH = 36
TEMPERATURES = [0.0, 0.8, 1.5]
PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5, 3, 5, 8, 9, 7, 9], [1, 1]]

MakeDrafter = Callable[[dict[int, list[int]]], Drafter | None]

DRAFTERS: dict[str, MakeDrafter] = {
    "off": lambda _: None,
    "right": lambda texts: OracleDrafter(texts, VOCABULARY),
    "wrong": lambda texts: OracleDrafter(texts, VOCABULARY, right=lambda _: False),
    "half right": lambda texts: OracleDrafter(texts, VOCABULARY, right=lambda at: at % 3 != 0),
    "random": lambda _: RandomDrafter(7, VOCABULARY),
    "scripted": lambda _: ScriptedDrafter([[1, 2, 3], [], [4] * 8, [5]], repeat=True),
    "ngram-simple": lambda _: NgramSimple(size_n=2, size_m=8),
    "ngram-map-k": lambda _: NgramMapK(size_n=2, size_m=8),
    "ngram-map-k4v": lambda _: NgramMapK4V(size_n=1, size_m=2),
    "ngram-mod": lambda _: NgramMod(n_match=2, n_min=1, n_max=8),
    "ngram-cache": lambda _: NgramCache(dynamic=NgramCounts()),
    "chain": lambda _: Chain(
        [NgramMapK4V(3, 2), FailingDrafter(5, 24), NgramSimple(3, 8), RandomDrafter(7, 24)]
    ),
}


def samplings(temperature: float) -> list[Sampling]:
    """One for each of four sequences."""
    return [Sampling(seed=1000 + slot, temperature=temperature) for slot in range(4)]


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("kind", [*KINDS, "rigid"])
def test_same_seed_same_text_whatever_is_drafted(kind: str, temperature: float) -> None:
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    ways = samplings(temperature)
    # The texts go on past their ends, so that drafts cross them.
    texts = {
        slot: [*prompt, *oracle.text(prompt, LENGTH + 8, ways[slot])]
        for slot, prompt in enumerate(PROMPTS)
    }
    expected = [
        [*prompt, *oracle.text_to_end(prompt, LENGTH, ways[slot])]
        for slot, prompt in enumerate(PROMPTS)
    ]
    accepted = 0
    for make in DRAFTERS.values():
        for depth in range(1, 9):
            for slots in (1, 4) if depth in (1, 4, 8) else (1,):
                runtime = simulated(kind, vocabulary_size=VOCABULARY, slots=slots)
                sequences = [
                    begin(
                        runtime,
                        PROMPTS[slot],
                        slot=slot,
                        slots=slots,
                        sampling=ways[slot],
                        ending=Ending(runtime.tokenizer.end_of_generation, max_tokens=LENGTH),
                        max_draft=depth,
                    )
                    for slot in range(slots)
                ]
                play_out(runtime, sequences, make(texts))
                assert [sequence.committed for sequence in sequences] == expected[:slots]
                accepted += sum(sequence.counts.accepted for sequence in sequences)
    assert (accepted > 100) == (kind != "rigid")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_a_seed_is_the_requests_own(kind: str, depth: int) -> None:
    """Case F10: alone, twice, and next to another request."""
    sampling = Sampling(seed=42, temperature=1.5)
    expected = Oracle(kind).text(PROMPTS[0], LENGTH, sampling)
    texts = {slot: [*PROMPTS[0], *expected] for slot in range(2)}
    drafter = OracleDrafter(texts, 64, right=lambda position: position % 4 != 0)
    for neighbours in (0, 0, 1):
        runtime = simulated(kind, slots=2)
        sequences = [
            begin(
                runtime,
                PROMPTS[slot],
                slot=slot,
                slots=2,
                sampling=sampling if slot == 0 else Sampling(seed=7, temperature=1.5),
                ending=Ending(max_tokens=LENGTH),
                max_draft=depth,
            )
            for slot in range(1 + neighbours)
        ]
        play_out(runtime, sequences, drafter)
        assert sequences[0].committed == texts[0]


def test_different_seeds_say_different_things() -> None:
    """Else the tests above would prove little."""
    oracle = Oracle("hybrid")
    texts = {
        tuple(oracle.text(PROMPTS[0], LENGTH, Sampling(seed=seed, temperature=1.5)))
        for seed in range(8)
    }
    assert len(texts) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_goes_on_the_same_from_its_journal_alone(kind: str) -> None:
    """Promise 5: a new worker absorbs what is committed, and nobody can tell."""
    sampling = Sampling(seed=5, temperature=0.8)
    oracle = Oracle(kind)
    expected = oracle.text(PROMPTS[2], LENGTH, sampling)
    for survived in range(0, LENGTH, 7):
        runtime = simulated(kind)
        sequence = begin(
            runtime,
            [*PROMPTS[2], *expected[:survived]],
            sampling=sampling,
            ending=Ending(max_tokens=LENGTH - survived),
        )
        play_out(runtime, [sequence], RandomDrafter(survived, 64))
        assert sequence.committed == [*PROMPTS[2], *expected]
