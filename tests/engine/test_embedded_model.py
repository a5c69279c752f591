"""What the simulated runtime can't vouch for: prefix reuse on libllama's own memory."""

from collections.abc import Iterator
from collections.abc import Sequence as Series

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import GREEDY, Feed, Sequence
from surefoot.engine import Engine, Request
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.support.near_ties import compare
from tests.support.planned_drafters import FunctionDrafter

PROMPT = (
    "<|im_start|>user\nWrite a Python function `is_prime(n)`.<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(params=[0, 4], ids=["forks", "snapshots"])
def runtime(request: pytest.FixtureRequest) -> Iterator[LibllamaRuntime]:
    settings = LoadSettings(models.TARGET, context_length=512, threads=1, snapshots=request.param)
    with load(settings) as runtime:
        yield runtime


@pytest.mark.parametrize("back", [0, 1, 2, 5])
def test_a_turn_that_ended_in_a_partial_acceptance_is_reused_from_a_fork_on(
    runtime: LibllamaRuntime, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    """Case A8: the history without its last tokens, and something new behind it."""
    evaluated = 0
    decode = runtime.decode

    def counted(feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        nonlocal evaluated
        evaluated += sum(len(feed.tokens) for feed in feeds)
        return decode(feeds)

    monkeypatch.setattr(runtime, "decode", counted)
    prompt = tuple(runtime.tokenizer.encode(PROMPT))
    plain = Engine(runtime).run(Request(prompt, GREEDY, max_tokens=30)).tokens
    end = next(index for index in range(12, 30) if plain[index] not in plain[:index])

    def draft(sequence: Sequence, most: int) -> list[int]:
        """Two tokens right, one wrong; the wrong one stands where the text ends."""
        at = sequence.generated
        return [*plain[at : at + (end - at) % 3 or 3], 5][: min(most, 3)]

    engine = Engine(runtime, FunctionDrafter(draft))
    engine.forget()
    stop = frozenset({plain[end]})
    first = engine.run(Request(prompt, GREEDY, max_tokens=30, stop_tokens=stop))
    assert first.summary.counts.accepted > 0
    assert first.summary.counts.rollbacks > 0
    history = [*prompt, *first.tokens]
    evaluated = 0
    second_prompt = (*history[: len(history) - back], 10, 11, 12)
    second = engine.run(Request(second_prompt, GREEDY, max_tokens=8, max_draft=0))
    assert evaluated == len(second_prompt) - second.summary.cached_tokens + 7
    if back <= 2:
        assert second.summary.cached_tokens >= len(prompt) - 1
    assert not compare(runtime, list(second_prompt), second.tokens, GREEDY).wrong
