"""`draft-mtp` on the embedded hybrid, whose file carries a trained head."""

from collections.abc import Iterator
from collections.abc import Sequence as Series

import pytest

from surefoot import models
from surefoot.commands.run import as_chat_tokens
from surefoot.decoding import GREEDY, Draft, Ending, Sampling, Sequence
from surefoot.drafting.chain import Chain
from surefoot.drafting.mtp import MOST_ROWS, MtpDrafter
from surefoot.drafting.ngram_mod import NgramMod
from surefoot.engine import Engine, Generation, GenerationState, Request
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load, open_head
from tests.conftest import FAMILY_FILES
from tests.support import split_heads
from tests.support.acceptance_prompts import PROMPTS
from tests.support.near_ties import compare
from tests.support.play import begin, play_out
from tests.support.random_models import random_model

LLAMA_SERVERS_ACCEPTANCE = {1: 133 / 144, 3: 196 / 237}
"""Build 11434 at temperature 0, Q8_0, by n-max (shared/models/README.md)."""


@pytest.fixture(scope="module", params=[0, 4], ids=["forks", "snapshots"])
def target(request: pytest.FixtureRequest) -> Iterator[LibllamaRuntime]:
    settings = LoadSettings(
        models.TARGET, context_length=2048, threads=1, mtp=True, snapshots=request.param
    )
    with load(settings) as runtime:
        yield runtime


def mtp_for(runtime: LibllamaRuntime, n_max: int = 3) -> MtpDrafter:
    return MtpDrafter(open_head(runtime), n_max=n_max)


def request_for(
    runtime: LibllamaRuntime, text: str, sampling: Sampling = GREEDY, length: int = 200
) -> Request:
    return Request(tuple(as_chat_tokens(runtime, text)), sampling, max_tokens=length)


def acceptance(generations: Series[Generation]) -> float:
    counts = [generation.summary.counts for generation in generations]
    return sum(c.accepted for c in counts) / sum(c.drafted for c in counts)


def check_text(runtime: LibllamaRuntime, generation: Generation) -> None:
    """The text is the oracle's up to near ties."""
    prompt = list(generation.request.prompt)
    agreement = compare(runtime, prompt, generation.tokens, generation.request.sampling)
    assert not agreement.wrong, agreement


@pytest.mark.parametrize("n_max", [1, 3])
def test_acceptance_is_llama_servers_and_passes_are_fewer(
    target: LibllamaRuntime, n_max: int
) -> None:
    drafter = mtp_for(target, n_max)
    engine = Engine(target, drafter, max_draft=n_max)
    generations = []
    for text in PROMPTS:
        engine.forget()
        generation = engine.run(request_for(target, text))
        assert generation.summary.passes == generation.summary.counts.rounds
        generations.append(generation)
    drafter.close()
    drafted = sum(generation.summary.counts.drafted for generation in generations)
    rate = acceptance(generations)
    print(f"n-max {n_max}: {rate:.3f} of {drafted}")
    # One pass for each draft token, and one for each prompt.
    assert drafter.draft_passes == drafted
    assert drafter.catch_up_passes == len(PROMPTS)
    assert drafter.missing == drafter.failures == 0
    assert rate == pytest.approx(LLAMA_SERVERS_ACCEPTANCE[n_max], abs=0.02)
    for generation in generations:
        check_text(target, generation)


@pytest.mark.parametrize("temperature", [0.8, 1.5])
def test_sampled_text_is_the_targets_own_and_the_noise_is_shared(
    target: LibllamaRuntime, temperature: float
) -> None:
    drafter = mtp_for(target)
    engine = Engine(target, drafter, max_draft=3)
    generations = []
    for seed, text in enumerate(PROMPTS):
        engine.forget()
        sampling = Sampling(seed=seed, temperature=temperature)
        generations.append(engine.run(request_for(target, text, sampling)))
    drafter.close()
    print(f"temperature {temperature}: {acceptance(generations):.3f}")
    assert acceptance(generations) > {0.8: 0.7, 1.5: 0.5}[temperature]
    for generation in generations:
        check_text(target, generation)


def test_acceptance_outlives_whatever_happens_to_the_slot(target: LibllamaRuntime) -> None:
    """Cases I1 to I3 and N: cache hit, other text in the slot, cancel."""
    drafter = mtp_for(target)
    engine = Engine(target, drafter, max_draft=3)
    engine.forget()
    code, other = request_for(target, PROMPTS[4]), request_for(target, PROMPTS[0])

    def run(request: Request) -> float:
        return acceptance([engine.run(request)])

    fresh = run(code)
    rates = {"again": run(code)}
    run(other)
    rates["after another"] = run(code)
    cancelled = engine.submit(other, lambda _: None)
    for _ in range(5):
        engine.step()
    cancelled.cancelled = True
    rates["after a cancelled one"] = run(code)
    assert cancelled.state is GenerationState.CANCELLED
    engine.forget()
    rates["in an empty slot"] = run(code)
    first = engine.run(other)
    history = [*other.prompt, *first.tokens, *target.tokenizer.encode("\n")]
    turn = tuple(history + as_chat_tokens(target, PROMPTS[1]))
    warm = engine.run(Request(turn, GREEDY, max_tokens=200))
    engine.forget()
    cold = engine.run(Request(turn, GREEDY, max_tokens=200))
    drafter.close()
    print(f"fresh {fresh:.3f}, {rates}; next turn {acceptance([warm])}, cold {acceptance([cold])}")
    assert warm.summary.cached_tokens > len(other.prompt)
    assert warm.summary.counts.drafted > 20
    assert rates == pytest.approx(dict.fromkeys(rates, fresh), abs=0.05)
    assert acceptance([warm]) == pytest.approx(acceptance([cold]), abs=0.05)
    assert drafter.missing <= 2


@pytest.mark.parametrize("pause", [50, 2 * MOST_ROWS + 10])
def test_acceptance_after_a_pause_is_as_before(target: LibllamaRuntime, pause: int) -> None:
    """Case I4."""
    drafter = mtp_for(target)
    engine = Engine(target, drafter, max_draft=3)
    engine.forget()
    long = "\n".join(f"x{i} = {i}" for i in range(10))
    prompt = tuple(target.tokenizer.encode(long))
    straight = engine.run(Request(prompt, GREEDY, max_tokens=pause + 200))
    engine.forget()
    generation = engine.submit(Request(prompt, GREEDY, max_tokens=pause + 200), lambda _: None)
    engine.step()
    assert generation.sequence is not None
    generation.sequence.max_draft = 0
    for _ in range(pause):
        engine.step()
    drafted = generation.summary.counts.drafted
    generation.sequence.max_draft = 3
    while not generation.state.over:
        engine.step()
    drafter.close()
    counts = generation.summary.counts
    print(f"straight {acceptance([straight]):.3f}, after the pause {counts.acceptance:.3f}")
    assert counts.drafted > drafted + 50
    assert counts.acceptance == pytest.approx(acceptance([straight]), abs=0.05)
    assert drafter.missing == 0


@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("snapshots", [0, 4])
def test_slots_share_passes_and_each_is_as_alone(slots: int, snapshots: int) -> None:
    """Cases J1, J2, J4."""
    settings = LoadSettings(
        models.TARGET, slots=slots, context_length=512, threads=1, mtp=True, snapshots=snapshots
    )
    with load(settings) as runtime:
        drafter = mtp_for(runtime)
        engine = Engine(runtime, drafter, max_draft=3)
        requests = [request_for(runtime, text, length=80) for text in PROMPTS[:slots]]
        alone = []
        for request in requests:
            engine.forget()
            alone.append(engine.run(request))
        engine.forget()
        passes, drafts = runtime.passes, drafter.draft_passes
        together = [engine.submit(request, lambda _: None) for request in requests]
        while not engine.idle:
            engine.step()
        drafted = sum(generation.summary.counts.drafted for generation in together)
        assert drafter.draft_passes - drafts < 0.8 * drafted
        # What is left are the prompts' passes, one each.
        assert runtime.passes - passes - slots <= sum(g.summary.counts.rounds for g in together)
        drafter.close()
        for one, other in zip(alone, together, strict=True):
            assert other.summary.counts.acceptance == pytest.approx(
                one.summary.counts.acceptance, abs=0.1
            )
            if one.tokens != other.tokens:
                check_text(runtime, other)
        assert acceptance(together) == pytest.approx(acceptance(alone), abs=0.05)


def test_every_slot_is_alike() -> None:
    """Case J1: the same request in slot 0, 1, 2 and 3."""
    settings = LoadSettings(models.TARGET, slots=4, context_length=512, threads=1, mtp=True)
    with load(settings) as runtime:
        drafter = mtp_for(runtime)
        results = []
        for slot in range(4):
            sequence = begin(
                runtime,
                as_chat_tokens(runtime, PROMPTS[1]),
                slot=slot,
                slots=4,
                ending=Ending(max_tokens=60),
                max_draft=3,
            )
            play_out(runtime, [sequence], drafter)
            assert sequence.counts.accepted > 20
            results.append((sequence.committed, sequence.counts))
        drafter.close()
        assert all(result == results[0] for result in results)


def test_a_head_in_a_file_of_its_own_drafts_alike(target: LibllamaRuntime) -> None:
    path = split_heads.head_of(models.TARGET, FAMILY_FILES, 8)
    counts = []
    for file in (None, path):
        head = open_head(target, file)
        drafter = MtpDrafter(head)
        engine = Engine(target, drafter, max_draft=3)
        engine.forget()
        counts.append(engine.run(request_for(target, PROMPTS[0])).summary.counts)
        drafter.close()
        head.close()
    assert counts[0].drafted == counts[1].drafted
    assert counts[0].accepted == counts[1].accepted > 30


def test_in_a_chain_it_goes_on_where_others_have_nothing(target: LibllamaRuntime) -> None:
    drafter = mtp_for(target)
    engine = Engine(target, Chain([NgramMod(4, 2, 16), drafter]), max_draft=16)
    engine.forget()
    generations = [engine.run(request_for(target, text)) for text in PROMPTS[3:]]
    drafter.close()
    for generation in generations:
        check_text(target, generation)
        print({k: (v.drafted, v.accepted) for k, v in generation.summary.counts.by_drafter.items()})
    by_drafter = [g.summary.counts.by_drafter for g in generations]
    drafted = sum(counts["draft-mtp"].drafted for counts in by_drafter)
    accepted = sum(counts["draft-mtp"].accepted for counts in by_drafter)
    assert sum(counts["ngram-mod"].accepted for counts in by_drafter) > 20
    assert drafter.draft_passes == drafted
    assert accepted / drafted > 0.7


class Recorded(MtpDrafter):
    """Notes its drafts."""

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        drafts = super().propose(wanted)
        self.drafts = [*getattr(self, "drafts", []), *drafts]
        return drafts


@pytest.mark.parametrize(("family", "heads"), [("hy_v3", 2), ("mimo2", 3)])
def test_several_heads_draft_on_several_slots(family: str, heads: int) -> None:
    """Random weights accept hardly anything, but drafts must be the same in company as alone."""
    path = random_model(family, FAMILY_FILES)
    settings = LoadSettings(path, slots=2, context_length=128, threads=1, mtp=True)
    prompts = [tuple(3 + 7 * i % 101 for i in range(20)), tuple(5 + 3 * i % 90 for i in range(9))]
    with load(settings) as runtime:
        drafts = []
        for together in (False, True):
            drafter = Recorded(open_head(runtime), n_max=8)
            engine = Engine(runtime, drafter, max_draft=8)
            requests = [Request(prompt, GREEDY, max_tokens=40) for prompt in prompts]
            generations = []
            for request in requests:
                engine.forget()
                generations.append(engine.submit(request, lambda _: None))
                while not together and not engine.idle:
                    engine.step()
            while not engine.idle:
                engine.step()
            drafter.close()
            assert drafter.missing == drafter.failures == 0
            assert max(len(draft.tokens) for draft in drafter.drafts) == heads
            drafts.append(sorted(tuple(draft.tokens) for draft in drafter.drafts))
            for generation in generations:
                check_text(runtime, generation)
        assert drafts[0] == drafts[1]
