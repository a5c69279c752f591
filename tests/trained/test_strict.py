"""Strict decoding on the trained hybrid: no drafter, memory or neighbour changes a single token."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llama_cpp
import pytest

from surefoot import models
from surefoot.cli import parser
from surefoot.commands.plan import EnginePlan
from surefoot.decoding import GREEDY, Sampling
from surefoot.engine import Engine, Request
from tests.support.acceptance_prompts import PROMPTS

DRAFTERS: dict[str, list[str]] = {
    "none": ["--spec-type", "none"],
    "ngram-simple": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"],
    "draft-simple": ["--spec-type", "draft-simple", "-md", str(models.DRAFT)],
    "draft-mtp": ["--spec-type", "draft-mtp"],
    "ngram-simple, draft-mtp, depth 6": [
        *["--spec-type", "ngram-simple,draft-mtp", "--spec-ngram-simple-size-n", "3"],
        *["--spec-draft-n-max", "6"],
    ],
    "draft-mtp, snapshots": ["--spec-type", "draft-mtp", "--snapshots", "8"],
}
TOKENS = 120
SAMPLINGS = [GREEDY, Sampling(seed=5, temperature=1.0)]


@contextmanager
def engine_for(path: Path, drafter: str) -> Iterator[Engine]:
    options = parser().parse_args(
        ["serve", "-m", str(path), "-t", "1", "-c", "6144", "-np", "3", *DRAFTERS[drafter]]
    )
    with EnginePlan.of(options, slots=3).open() as engine:
        yield engine


def texts(engine: Engine, *, crowded: bool) -> list[list[int]]:
    """What strict requests say, alone or beside two fast ones and another strict one."""
    encode = engine.runtime.tokenizer.encode
    found = []
    for index, prompt in enumerate(PROMPTS):
        for sampling in SAMPLINGS:
            tokens = tuple(encode(prompt))
            request = Request(tokens, sampling, max_tokens=TOKENS, exact="strict")
            if crowded:
                others = [tuple(encode(other)) for other in PROMPTS[index - 2 : index] or PROMPTS]
                for other in others[:2]:
                    engine.submit(Request(other, sampling, max_tokens=40), lambda _: None)
                engine.submit(
                    Request(others[0], sampling, max_tokens=60, exact="strict"), lambda _: None
                )
            generation = engine.submit(request, lambda _: None)
            while not engine.idle:
                engine.step()
            assert generation.error is None
            found.append(generation.tokens)
    return found


@pytest.fixture(scope="module")
def four_bits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model in Q4_K_M, whose kernels change with nearly every width."""
    path = tmp_path_factory.mktemp("q4") / "tiny-q4.gguf"
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    parameters.allow_requantize = True
    parameters.nthread = 1
    code = llama_cpp.llama_model_quantize(
        str(models.TARGET).encode(), str(path).encode(), ctypes.byref(parameters)
    )
    assert code == 0
    return path


@pytest.mark.parametrize("weights", ["Q8_0", "Q4_K_M"])
def test_strict_text_is_the_same_with_any_drafter_and_beside_others(
    weights: str, four_bits: Path
) -> None:
    path = models.TARGET if weights == "Q8_0" else four_bits
    expected: list[list[int]] | None = None
    for drafter in DRAFTERS:
        with engine_for(path, drafter) as engine:
            alone = texts(engine, crowded=False)
            expected = expected or alone
            assert alone == expected, drafter
            assert texts(engine, crowded=True) == expected, drafter
