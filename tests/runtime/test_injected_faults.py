"""Each call of libllama fails once, wherever a run makes it: no hang, no leak, and the right text
or an error in words for whoever was concerned.

A run loads a model, answers two requests side by side with drafts that are accepted in part, then a
third one, encodes a text, and closes everything. `undisturbed` counts its calls; then for each of
them one more run is made in which that call alone fails, as libllama itself would say it.
"""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Series
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from surefoot import models
from surefoot.decoding import (
    GREEDY,
    DecodeError,
    Drafter,
    Feed,
    RollbackRefusedError,
    Sequence,
    SurefootError,
)
from surefoot.drafting.mtp import MtpDrafter
from surefoot.engine import Engine, Generation, GenerationState, Request
from surefoot.runtime.libllama import LoadSettings, binding, load, open_head
from tests.conftest import FAMILY_FILES
from tests.engine.playing import play
from tests.support.planned_drafters import FunctionDrafter
from tests.support.random_models import random_model

PROMPTS = [[3, 14, 15, 92, 65, 35, 89, 79], [27, 18, 28, 18, 28], [16, 18, 3, 39, 88, 74]]
LENGTH = 12
TEXT = "def f(x): return x"
INT32_MIN = -(1 << 31)
Failure = Callable[..., Any]


def answers(value: Any) -> Failure:
    """Does nothing, and says so."""
    return lambda _real, *_: value


def does_and_answers(value: Any) -> Failure:
    """Does what it should, and says that it has failed."""

    def failing(real: Callable[..., Any], *arguments: Any) -> Any:
        real(*arguments)
        return value

    return failing


def null_floats(_real: Callable[..., Any], *_: Any) -> Any:
    return ctypes.POINTER(ctypes.c_float)()


FAILURES: dict[str, dict[str, Failure]] = {
    "llama_model_load_from_file": {"null": answers(None)},
    "llama_init_from_model": {"null": answers(None)},
    "llama_get_memory": {"null": answers(None)},
    "gguf_init_from_file": {"null": answers(None)},
    "llama_model_meta_val_str": {"missing": answers(-1)},
    "llama_model_desc": {"missing": answers(-1)},
    "llama_model_chat_template": {"null": answers(None)},
    "llama_decode": {
        "no cells": answers(1),
        "aborted": answers(2),
        "invalid": answers(-1),
        "no memory": answers(-2),
        "computation": does_and_answers(-3),
    },
    "llama_get_logits": {"null": null_floats},
    "llama_memory_seq_rm": {"refused": answers(False)},
    "llama_memory_seq_cp": {"not done": answers(None)},
    "llama_memory_seq_pos_max": {"empty": answers(-1)},
    "llama_memory_seq_pos_min": {"empty": answers(-1)},
    "llama_set_embeddings_nextn": {"not done": answers(None)},
    "llama_get_embeddings_nextn": {"null": null_floats},
    "llama_tokenize": {"overflow": answers(INT32_MIN), "too little room": answers(-100)},
    "llama_token_to_piece": {"too little room": answers(-100)},
}
"""How each call says that it has failed; what says nothing simply has not done it."""

RESOURCES = {
    "llama_model_load_from_file": "llama_model_free",
    "llama_init_from_model": "llama_free",
    "gguf_init_from_file": "gguf_free",
}
"""What makes something, and what frees it."""


class Faults:
    """Stands in front of libllama, counts its calls, and lets one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self._target: tuple[str, int, Failure] | None = None
        makers = {free: make for make, free in RESOURCES.items()}
        for name in {*FAILURES, *RESOURCES, *RESOURCES.values()}:
            real = getattr(binding, name)
            monkeypatch.setattr(binding, name, self._wrapped(name, real, makers))

    def begin(self, target: tuple[str, int, Failure] | None = None) -> None:
        """Count from 0; the call of that name and number fails in that way."""
        self.calls.clear()
        self._target = target

    def _wrapped(
        self, name: str, real: Callable[..., Any], makers: dict[str, str]
    ) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            number = self.calls[name]
            self.calls[name] += 1
            if self._target and (name, number) == self._target[:2]:
                return self._target[2](real, *arguments)
            result = real(*arguments)
            if name in RESOURCES and result:
                self.held[name] += 1
            if name in makers:
                self.held[makers[name]] -= 1
            return result

        return call


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    made = Faults(monkeypatch)
    yield made
    made.begin()


@dataclass
class Run:
    """What came of a run: an error in loading or encoding, or answers."""

    error: SurefootError | None = None
    generations: list[Generation] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Setup:
    """What is run.

    Attributes:
        settings: the model, and how it is loaded.
        head: whether the model's own head drafts; else half of the right text does.
        text: whether it has a tokenizer.
        places: so many places of each call are tried, evenly spread if there are more.
    """

    settings: LoadSettings
    head: bool = False
    text: bool = True
    places: int = 12

    def run(self, texts: dict[int, list[int]] | None = None) -> Run:
        """Make a run, with drafts from the texts by the prompt's first token."""
        run = Run()
        try:
            with ExitStack() as stack:
                runtime = stack.enter_context(closing(load(self.settings)))
                drafter: Drafter = FunctionDrafter(half_right(texts or {}))
                if self.head:
                    head = stack.enter_context(closing(open_head(runtime)))
                    drafter = MtpDrafter(head, n_max=3)
                    stack.callback(drafter.close)
                if self.text:
                    run.tokens = runtime.tokenizer.encode(TEXT)
                engine = Engine(runtime, drafter, max_draft=3)
                requests = [Request(tuple(p), GREEDY, max_tokens=LENGTH) for p in PROMPTS]
                for batch in (requests[:2], requests[2:]):
                    run.generations += [engine.submit(each, lambda _: None) for each in batch]
                    play(engine, most_steps=20 * LENGTH)
        except SurefootError as error:
            run.error = error
        return run


def half_right(texts: dict[int, list[int]]) -> Callable[[Sequence, int], list[int]]:
    def draft(sequence: Sequence, most: int) -> list[int]:
        text = texts.get(sequence.committed[0], [])
        start = len(sequence.committed)
        if text[:start] != sequence.committed:
            return []
        return [t if at % 3 else t ^ 1 for at, t in enumerate(text[start : start + most], start)]

    return draft


def family(name: str, **settings: Any) -> Setup:
    path = random_model(name, FAMILY_FILES)
    return Setup(settings_of(path, **settings), text=False)


def settings_of(path: Path, **settings: Any) -> LoadSettings:
    return LoadSettings(path, slots=2, context_length=64, threads=1, longest_draft=8, **settings)


SETUPS: dict[str, Callable[[], Setup]] = {
    "attention": lambda: Setup(settings_of(models.DRAFT)),
    "window": lambda: family("gemma3"),
    "recurrent": lambda: family("mamba2"),
    "hybrid": lambda: family("qwen35"),
    "hybrid with snapshots": lambda: family("qwen35", snapshots=2),
    "hybrid with a head": lambda: Setup(settings_of(models.TARGET, mtp=True), head=True, places=5),
}


def first_difference(one: Series[int], other: Series[int]) -> int | None:
    pairs = enumerate(zip(one, other, strict=False))
    differing = next((at for at, (a, b) in pairs if a != b), None)
    if differing is None and len(one) != len(other):
        return min(len(one), len(other))
    return differing


def assert_right(run: Run, right: Run, what: str) -> None:
    """All that was said is right, or at a near tie; who was not served was told in words."""
    if run.error is not None:
        assert len(str(run.error)) > 20, what
        return
    assert run.tokens == right.tokens, what
    failed = 0
    for generation, expected in zip(run.generations, right.generations, strict=True):
        if generation.state is GenerationState.FAILED:
            failed += 1
            assert generation.error, what
            assert "internal error" not in generation.error, f"{what}: {generation.error}"
            continue
        assert generation.state is GenerationState.FINISHED, what
        at = first_difference(generation.tokens, expected.tokens)
        if at is not None:
            position = at + len(generation.request.prompt)
            ties = {
                *generation.summary.counts.near_tie_positions,
                *expected.summary.counts.near_tie_positions,
            }
            assert position in ties, f"{what}: {generation.tokens} and not {expected.tokens}"
    assert failed <= 1, what


def spread(count: int, most: int) -> list[int]:
    """Numbers of calls to try: all, or the first, the last and some between."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


@pytest.mark.parametrize("kind", SETUPS)
def test_each_call_of_libllama_that_fails_once_costs_no_hang_no_leak_and_no_text(
    kind: str, faults: Faults
) -> None:
    setup = SETUPS[kind]()
    plain = setup.run()
    assert plain.error is None
    texts = {g.request.prompt[0]: [*g.request.prompt, *g.tokens] for g in plain.generations}
    faults.begin()
    right = setup.run(texts)
    calls = dict(faults.calls)
    assert_right(right, plain, "undisturbed")
    assert any(g.summary.counts.rollbacks for g in right.generations)
    assert +faults.held == Counter()
    tried = Counter[str]()
    for name, failures in FAILURES.items():
        for number in spread(calls.get(name, 0), setup.places):
            for how, failure in failures.items():
                faults.begin((name, number, failure))
                what = f"{kind}: call {number} of {name}, {how}"
                run = setup.run(texts)
                assert_right(run, right, what)
                assert +faults.held == Counter(), f"{what} leaks"
                tried[name] += 1
    print(f"{kind}: {dict(tried)}")
    assert {"llama_decode", "llama_get_logits", "llama_memory_seq_rm"} <= set(tried)
    assert setup.run(texts).error is None


def test_a_tokenizer_that_never_has_room_enough_is_an_error_and_no_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with load(settings_of(models.DRAFT)) as runtime:
        monkeypatch.setattr(binding, "llama_tokenize", lambda *_: -100)
        monkeypatch.setattr(binding, "llama_token_to_piece", lambda *_: -100)
        with pytest.raises(SurefootError, match="could not be turned into tokens"):
            runtime.tokenizer.encode(TEXT)
        with pytest.raises(SurefootError, match="text of token 5"):
            runtime.tokenizer.piece(5)


@pytest.mark.parametrize("refusals", [1, 100])
def test_what_libllama_does_not_forget_is_never_mixed_with_anything(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = family("qwen35")
    with load(setup.settings) as runtime:
        real, left = binding.llama_memory_seq_rm, [refusals]

        def refuse(*arguments: Any) -> bool:
            left[0] -= 1
            return left[0] < 0 and real(*arguments)

        for sequence in (0, 2):
            runtime.decode([Feed(sequence, PROMPTS[0], 0, 1)])
        monkeypatch.setattr(binding, "llama_memory_seq_rm", refuse)
        runtime.drop(2)
        if refusals == 1:
            runtime.fork(0, 2, 0, len(PROMPTS[0]))
        else:
            with pytest.raises(RollbackRefusedError, match="has not been forgotten"):
                runtime.fork(0, 2, 0, len(PROMPTS[0]))
            with pytest.raises(DecodeError, match="its memory holds 8 tokens"):
                runtime.decode([Feed(2, PROMPTS[1], 0, 1)])


@pytest.mark.parametrize("name", ["llama_vocab_n_tokens", "llama_model_desc", "llama_get_memory"])
def test_an_exception_in_the_middle_of_loading_leaves_nothing_behind(
    name: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("access violation")

    monkeypatch.setattr(binding, name, broken)
    with pytest.raises(OSError, match="access violation"):
        load(settings_of(models.DRAFT))
    assert +faults.held == Counter()
    assert faults.calls["llama_model_load_from_file"] == 1
