"""`draft-simple` on the embedded hybrid with its draft model, and on other pairs of real files."""

from collections.abc import Iterator

import pytest

from surefoot import models
from surefoot.commands.run import as_chat_tokens
from surefoot.decoding import Sampling
from surefoot.drafting.draft_model import DraftModel
from surefoot.drafting.vocabulary import Vocabulary, VocabularyMismatchError, shared_tokens
from surefoot.engine import Engine, Generation, Request
from surefoot.runtime.base import Runtime
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.conftest import FAMILY_FILES
from tests.support.acceptance_prompts import PROMPTS
from tests.support.near_ties import compare
from tests.support.random_models import random_model

GREEDY = Sampling(temperature=0.0)
LLAMA_SERVERS_ACCEPTANCE = 176 / 228
"""Build 11434 at temperature 0, n-max 3, Q8_0 (shared/models/README.md)."""


@pytest.fixture(scope="module")
def draft_model() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.DRAFT, context_length=2048, threads=1)) as runtime:
        yield runtime


def generate(engine: Engine, text: str, sampling: Sampling, length: int = 200) -> Generation:
    prompt = tuple(as_chat_tokens(engine.runtime, text))
    return engine.run(Request(prompt, sampling, max_tokens=length))


def vocabulary(runtime: Runtime) -> Vocabulary:
    return Vocabulary.of(runtime.info.name, runtime.vocabulary_size, runtime.tokenizer)


def test_acceptance_is_llama_servers(
    trained: LibllamaRuntime, draft_model: LibllamaRuntime
) -> None:
    drafter = DraftModel(draft_model, n_max=3)
    engine = Engine(trained, drafter, max_draft=3)
    drafted = accepted = 0
    before = draft_model.passes
    for text in PROMPTS:
        summary = generate(engine, text, GREEDY).summary
        drafted += summary.counts.drafted
        accepted += summary.counts.accepted
        assert summary.passes == summary.counts.rounds
    print(f"{accepted}/{drafted} = {accepted / drafted:.3f}, {draft_model.passes - before} passes")
    assert draft_model.passes - before == drafted
    assert accepted / drafted == pytest.approx(LLAMA_SERVERS_ACCEPTANCE, abs=0.03)
    assert drafter.failures == 0


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
def test_the_text_is_the_targets_own(
    trained: LibllamaRuntime, draft_model: LibllamaRuntime, temperature: float
) -> None:
    engine = Engine(trained, DraftModel(draft_model, n_max=4), max_draft=4)
    plain = Engine(trained)
    for seed, text in enumerate(PROMPTS):
        engine.forget()
        sampling = Sampling(seed=seed, temperature=temperature)
        generation = generate(engine, text, sampling, 100)
        counts = generation.summary.counts
        assert counts.accepted > 0
        plain.forget()
        if generation.tokens != generate(plain, text, sampling, 100).tokens:
            prompt = list(generation.request.prompt)
            agreement = compare(trained, prompt, generation.tokens, sampling)
            print(f"temperature {temperature}, prompt {seed}: {agreement}")
            assert not agreement.wrong
        print(f"temperature {temperature}: {counts.accepted}/{counts.drafted}")


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_hybrid_drafts_for_itself_by_forks(trained: LibllamaRuntime, temperature: float) -> None:
    """It is right but for near ties, at any temperature: the noise is shared."""
    with load(LoadSettings(models.TARGET, context_length=2048, threads=1)) as twin:
        assert twin.rollback.kind == "fork"
        drafter = DraftModel(
            twin, n_max=4, shared=shared_tokens(vocabulary(trained), vocabulary(twin))
        )
        engine = Engine(trained, drafter, max_draft=4)
        drafted = accepted = 0
        for seed, text in enumerate(PROMPTS[:3]):
            engine.forget()
            sampling = Sampling(seed=seed, temperature=temperature)
            generation = generate(engine, text, sampling, 100)
            drafted += generation.summary.counts.drafted
            accepted += generation.summary.counts.accepted
            prompt = list(generation.request.prompt)
            assert not compare(trained, prompt, generation.tokens, sampling).wrong
        print(f"temperature {temperature}: {accepted}/{drafted}, {twin.passes} passes")
        assert twin.passes == drafted
        assert accepted / drafted > 0.9
        assert drafter.failures == 0


def _first_accepted(generation: Generation) -> float:
    """How many of the first tokens of drafts were accepted, whatever lengths drafts were cut to."""
    counts = generation.summary.counts
    return counts.accepted_by_position[0] / counts.drafted_by_position[0]


def test_a_draft_model_with_more_slots_drafts_for_each_as_well_as_alone(
    draft_model: LibllamaRuntime,
) -> None:
    settings = {"context_length": 512, "slots": 3, "threads": 1}
    alone = {}
    with load(LoadSettings(models.TARGET, **settings)) as target:  # type: ignore[arg-type]
        for text in PROMPTS[:3]:
            engine = Engine(target, DraftModel(draft_model, n_max=3), max_draft=3)
            alone[text] = _first_accepted(generate(engine, text, GREEDY, 80))
        with load(LoadSettings(models.DRAFT, **settings)) as model:  # type: ignore[arg-type]
            engine = Engine(target, DraftModel(model, n_max=3), max_draft=3)
            generations = {
                text: engine.submit(
                    Request(tuple(as_chat_tokens(target, text)), GREEDY, max_tokens=80),
                    lambda _: None,
                )
                for text in PROMPTS[:3]
            }
            while not engine.idle:
                engine.step()
            drafted = sum(g.summary.counts.drafted for g in generations.values())
            assert model.passes < 0.6 * drafted
    for text, generation in generations.items():
        assert _first_accepted(generation) >= alone[text] - 0.05


def test_the_embedded_draft_model_shares_all_tokens(
    trained: LibllamaRuntime, draft_model: LibllamaRuntime
) -> None:
    assert shared_tokens(vocabulary(trained), vocabulary(draft_model)) == 8192


def test_a_model_without_tokenizer_is_refused(trained: LibllamaRuntime) -> None:
    path = random_model("rwkv7", FAMILY_FILES)
    with (
        load(LoadSettings(path, context_length=64, threads=1)) as other,
        pytest.raises(VocabularyMismatchError, match="draft model's file carries no tokenizer"),
    ):
        shared_tokens(vocabulary(trained), vocabulary(other))
