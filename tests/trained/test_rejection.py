"""Rejection on the embedded models: both drafters that run one draw for it, and are accepted."""

from collections.abc import Iterator

import pytest

from surefoot import models
from surefoot.commands.run import as_chat_tokens
from surefoot.decoding import Drafter, Sampling
from surefoot.drafting.draft_model import DraftModel
from surefoot.drafting.mtp import MtpDrafter
from surefoot.engine import Engine, Request
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load, open_head
from tests.support.acceptance_prompts import PROMPTS


@pytest.fixture(scope="module")
def target() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.TARGET, context_length=512, threads=1, mtp=True)) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def draft_model() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.DRAFT, context_length=512, threads=1)) as runtime:
        yield runtime


@pytest.mark.parametrize("kind", ["draft-simple", "draft-mtp"])
def test_drafts_are_accepted_and_a_seed_gives_the_same_text_twice(
    target: LibllamaRuntime, draft_model: LibllamaRuntime, kind: str
) -> None:
    simple = kind == "draft-simple"
    texts = []
    for seed in (3, 3, 4):
        drafter: Drafter = (
            DraftModel(draft_model, n_max=3) if simple else MtpDrafter(open_head(target), n_max=3)
        )
        engine = Engine(target, drafter, max_draft=3)
        engine.forget()
        prompt = tuple(as_chat_tokens(target, PROMPTS[0]))
        sampling = Sampling(seed=seed, temperature=1.0)
        generation = engine.run(Request(prompt, sampling, max_tokens=60, rule="rejection"))
        counts = generation.summary.counts
        print(f"{kind}, seed {seed}: {counts.accepted} of {counts.drafted} accepted")
        assert 0 < counts.accepted < counts.drafted
        assert set(counts.by_drafter) == {kind}
        texts.append(generation.tokens)
        if isinstance(drafter, MtpDrafter):
            drafter.close()
    assert texts[0] == texts[1] != texts[2]
