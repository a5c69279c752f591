"""Promises kept on the embedded trained hybrid, up to near ties (tests/support/near_ties.py)."""

import random

import pytest

from surefoot.decoding import Drafter, Sampling
from surefoot.engine import Engine, Generation, Request
from surefoot.runtime.libllama import LibllamaRuntime
from tests.support.drafters import MostlyRight
from tests.support.near_ties import compare

CODE = (
    "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n"
    "    def add(self, other):\n        return Point(self.x + other.x, self.y + other.y)\n\n"
    "class Size:\n    def __init__(self, w, h):\n"
)
CHAT = "<|im_start|>user\nWrite a Python function `is_prime(n)`.<|im_end|>\n<|im_start|>assistant\n"


def generate(
    runtime: LibllamaRuntime,
    prompt: str,
    sampling: Sampling,
    length: int,
    drafter: Drafter | None = None,
    depth: int = 8,
) -> Generation:
    engine = Engine(runtime, drafter, max_draft=depth)
    engine.forget()
    tokens = tuple(runtime.tokenizer.encode(prompt))
    return engine.run(Request(tokens, sampling, max_tokens=length))


def test_800_greedy_tokens_with_100_partial_acceptances_are_the_oracles(
    trained: LibllamaRuntime,
) -> None:
    sampling = Sampling(temperature=0.0)
    plain = generate(trained, CODE, sampling, 800)
    drafter = MostlyRight(plain.tokens, seed=7, wrong=0.9)
    speculative = generate(trained, CODE, sampling, 800, drafter)
    assert speculative.summary.passes == speculative.summary.counts.rounds
    assert drafter.partial >= 100
    agreement = compare(trained, list(plain.request.prompt), speculative.tokens, sampling)
    print(f"{drafter.partial} partial acceptances; {agreement}")
    assert agreement.positions == 800
    assert not agreement.wrong


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
@pytest.mark.parametrize("depth", [1, 3, 8])
def test_same_seed_same_text_whatever_is_drafted(
    trained: LibllamaRuntime, temperature: float, depth: int
) -> None:
    sampling = Sampling(seed=random.Random(depth).getrandbits(32), temperature=temperature)
    plain = generate(trained, CHAT, sampling, 100)
    prompt = list(plain.request.prompt)
    for seed, wrong in ((1, 0.0), (2, 0.3), (3, 1.0)):
        drafter = MostlyRight(plain.tokens, seed=seed, wrong=wrong)
        speculative = generate(trained, CHAT, sampling, 100, drafter, depth)
        if speculative.tokens != plain.tokens:
            agreement = compare(trained, prompt, speculative.tokens, sampling)
            print(f"seed {sampling.seed}, drafts {wrong:.0%} wrong: {agreement}")
            assert not agreement.wrong
