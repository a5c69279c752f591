"""Engines on simulated runtimes, and drafters that know what their requests will say."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Series
from typing import Any

from surefoot.decoding import GREEDY, Drafter, Sampling, Sequence
from surefoot.engine import Engine, Generation, Request
from surefoot.runtime.simulated import SimulatedRuntime
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FunctionDrafter

ALL_KINDS = [*KINDS, "rigid"]
VOCABULARY = 512
LANGUAGE: dict[str, Any] = {"vocabulary_size": VOCABULARY, "end_rate": 1 / 1000}
"""Of the models here, if nothing else is said: many words, texts that hardly end by themselves."""


def runtime_of(kind: str, **settings: Any) -> SimulatedRuntime:
    """A simulated runtime that speaks the language of these tests."""
    return simulated(kind, **{**LANGUAGE, **settings})


def oracle_of(kind: str, **settings: Any) -> Oracle:
    """Its oracle."""
    return Oracle(kind, **{**LANGUAGE, **settings})


def often_right(position: int) -> bool:
    """Right for a few positions, then wrong at one, so that drafts are accepted in part."""
    return position % 3 != 0


def knowing(
    texts: Iterable[Series[int]], right: Callable[[int], bool] = often_right
) -> FunctionDrafter:
    """A drafter that goes on with whichever text begins with what is committed.

    Args:
        texts: whole texts, prompts included.
        right: whether to draft the right token at a position.
    """
    known = [list(text) for text in texts]

    def draft(sequence: Sequence, most: int) -> list[int]:
        start = len(sequence.committed)
        for text in known:
            if text[:start] == sequence.committed:
                return [
                    token if right(position) else (token + 1) % VOCABULARY
                    for position, token in enumerate(text[start : start + most], start)
                ]
        return []

    return FunctionDrafter(draft)


class Asker:
    """Knows what a kind of model says to a prompt, and makes requests of it.

    Args:
        kind: the kind of memory.
        length: how many tokens the texts have.
        sampling: how tokens are chosen.
        settings: of the runtime.
    """

    def __init__(
        self, kind: str, length: int = 24, sampling: Sampling = GREEDY, **settings: Any
    ) -> None:
        self._oracle = oracle_of(kind, **settings)
        self._length = length
        self._sampling = sampling

    def says(self, prompt: Series[int]) -> list[int]:
        """The right answer, as far as `request` lets it go."""
        return self._oracle.text_to_end(prompt, self._length, self._sampling)

    def beyond(self, prompt: Series[int]) -> list[int]:
        """Prompt and answer, past any end: what a drafter may know."""
        return [*prompt, *self._oracle.text(prompt, self._length + 20, self._sampling)]

    def request(self, prompt: Series[int], **fields: Any) -> Request:
        """A request for the text."""
        wanted = {"sampling": self._sampling, "max_tokens": self._length, **fields}
        return Request(tuple(prompt), **wanted)

    def drafter(
        self, prompts: Iterable[Series[int]], right: Callable[[int], bool] = often_right
    ) -> FunctionDrafter:
        """A drafter that knows the answers to some prompts."""
        return knowing([self.beyond(prompt) for prompt in prompts], right)


def play(engine: Engine, most_steps: int = 2000) -> None:
    """Step until the engine is idle.

    Raises:
        AssertionError: it still isn't after so many steps.
    """
    for _ in range(most_steps):
        if engine.idle:
            return
        engine.step()
    raise AssertionError(f"still busy after {most_steps} steps")


def run_all(engine: Engine, requests: Iterable[Request]) -> list[Generation]:
    """Submit some requests at once, and play until all have ended."""
    generations = [engine.submit(request, lambda _: None) for request in requests]
    play(engine)
    return generations


def engine_of(
    kind: str, drafter: Drafter | None = None, max_draft: int = 4, **settings: Any
) -> tuple[Engine, SimulatedRuntime]:
    """An engine and its runtime."""
    runtime = runtime_of(kind, **settings)
    return Engine(runtime, drafter, max_draft), runtime
