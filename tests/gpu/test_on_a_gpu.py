"""What must hold on a real GPU. Deselected by default: `pytest -m gpu tests/gpu -s` runs it.

Logits move with batch width on GPUs more than on CPUs, so text is judged by the near-tie rule;
states are compared at equal widths, where nothing but a wrong state should show.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from surefoot import models
from surefoot.bench.overhead import rollback_cost
from surefoot.decoding import Feed, Sampling, memory_for
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.engine import Engine, Request
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, binding, load
from tests.conftest import FAMILY_FILES
from tests.support.drafters import MostlyRight
from tests.support.near_ties import compare
from tests.support.random_models import FAMILIES, random_model

pytestmark = pytest.mark.gpu

PROMPTS = [
    f"<|im_start|>user\nWrite a Python function that {task}.<|im_end|>\n<|im_start|>assistant\n"
    for task in (
        "parses a configuration file",
        "counts the words in a text",
        "merges two sorted lists",
        "reads a CSV file",
        "flattens a nested list",
        "computes the mean of a list",
        "validates an e-mail address",
        "reverses a linked list",
    )
]


@pytest.fixture(scope="module")
def gpu() -> Iterator[LibllamaRuntime]:
    runtime = load(LoadSettings(models.TARGET, context_length=8704, slots=1))
    yield runtime
    runtime.close()


def test_libllama_has_a_gpu_backend() -> None:
    assert binding.llama_supports_gpu_offload()


@pytest.mark.parametrize("family", [*FAMILIES, "trained"])
def test_a_memory_taken_back_goes_on_as_one_that_never_drafted(family: str) -> None:
    path = models.TARGET if family == "trained" else random_model(family, FAMILY_FILES)
    with load(LoadSettings(path, context_length=1024, slots=1)) as runtime:
        draws = np.random.default_rng(5)
        worst = 0.0
        for width in range(1, 9):
            prompt, draft, after = (
                draws.integers(0, runtime.vocabulary_size, n).tolist() for n in (40, width, 4)
            )
            memory = memory_for(runtime, 0, spare_id=1)
            memory.clear()
            runtime.decode([Feed(0, prompt, 0, outputs=0)])
            memory.absorbed(len(prompt))
            memory.brace()
            runtime.decode([Feed(0, draft, 40, outputs=1)])
            memory.absorbed(width)
            memory.settle(40)
            assert memory.length == 40
            taken_back = runtime.decode([Feed(0, after, 40, outputs=4)])[0].copy()
            memory.absorbed(4)
            memory.clear()
            runtime.decode([Feed(0, prompt, 0, outputs=0)])
            straight = runtime.decode([Feed(0, after, 40, outputs=4)])[0].copy()
            runtime.drop(0)
            worst = max(worst, float(np.abs(taken_back - straight).max()))
        print(f"{family}: by {runtime.rollback.kind}, largest difference {worst:.2g}")
        assert worst <= 0.02


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_text_with_speculation_is_the_oracles_up_to_near_ties(
    gpu: LibllamaRuntime, temperature: float
) -> None:
    sampling = Sampling(seed=3, temperature=temperature)
    equal = ties = positions = flips = 0
    for number, prompt in enumerate(PROMPTS):
        tokens = tuple(gpu.tokenizer.encode(prompt))
        request = Request(tokens, sampling, max_tokens=200)
        plain = Engine(gpu).run(request)
        gpu.drop(0)
        for drafter in (
            NgramSimple(size_n=3, size_m=8),
            MostlyRight(plain.tokens, seed=number),
        ):
            engine = Engine(gpu, drafter, max_draft=8)
            engine.forget()
            speculative = engine.run(request)
            engine.forget()
            assert speculative.summary.passes == speculative.summary.counts.rounds
            equal += speculative.tokens == plain.tokens
            ties += speculative.summary.counts.near_ties
            agreement = compare(gpu, list(tokens), speculative.tokens, sampling)
            assert not agreement.wrong
            positions += agreement.positions
            flips += len(agreement.near_tie_differences)
    print(
        f"temperature {temperature}: {equal} of {2 * len(PROMPTS)} texts equal to plain; of "
        f"{positions} tokens {flips} differ from the oracle's choice, all at near ties ({ties})"
    )


def test_undoing_a_rejected_draft_takes_microseconds(gpu: LibllamaRuntime) -> None:
    """Prints the figures; only that it works is asserted."""
    for context in (1024, 8192):
        cost = rollback_cost(gpu, context)
        print(cost)
        assert cost.together > 0
