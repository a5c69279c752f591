"""Cancelled requests: gone within one step, and nothing of theirs is taken for cache (theme N)."""

from collections.abc import Callable

import pytest

from surefoot.engine import Delta, Engine, Generation, GenerationState
from surefoot.runtime.simulated import SimulatedRuntime
from tests.engine.playing import ALL_KINDS, Asker, engine_of, play

LONG = [256 + number % 200 for number in range(100)]
SHORT = [300, 301]
OTHER = [307, 308, 309]


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []

    def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)

    @property
    def tokens(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.tokens]


def cancel_after(
    kind: str, prompt: list[int], steps: int
) -> tuple[Engine, SimulatedRuntime, Generation, Listener]:
    """Run a request for some steps on an engine with small passes, and cancel it."""
    asker = Asker(kind, length=60)
    engine, runtime = engine_of(kind, asker.drafter([prompt]), batch_size=32)
    listener = Listener()
    generation = engine.submit(asker.request(prompt), listener)
    for _ in range(steps):
        engine.step()
    assert not generation.state.over
    generation.cancelled = True
    return engine, runtime, generation, listener


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("steps", [0, 1, 2, 4, 5, 8])
@pytest.mark.parametrize("prompt", [LONG, SHORT], ids=["long", "short"])
def test_a_cancelled_request_is_gone_after_one_step_and_costs_no_pass(
    kind: str, prompt: list[int], steps: int
) -> None:
    """Case N1, N3: while it waits, while its prompt is absorbed, and between rounds."""
    engine, runtime, generation, listener = cancel_after(kind, prompt, steps)
    passes = runtime.passes
    engine.step()
    assert engine.idle
    assert runtime.passes == passes
    assert generation.state is GenerationState.CANCELLED
    assert [delta.state.over for delta in listener.deltas].count(True) == 1
    assert listener.deltas[-1].state is GenerationState.CANCELLED
    assert listener.tokens == generation.tokens
    assert generation.tokens == Asker(kind, length=60).says(prompt)[: len(generation.tokens)]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("steps", [0, 1, 2, 4, 5, 8])
@pytest.mark.parametrize("prompt", [LONG, SHORT], ids=["long", "short"])
def test_cancelled_work_never_becomes_cache(kind: str, prompt: list[int], steps: int) -> None:
    """Case N5: the next request on the slot is right, and finds nothing there."""
    engine, runtime, generation, _ = cancel_after(kind, prompt, steps)
    engine.step()
    assert runtime.length(0) == 0
    asker = Asker(kind)
    after = [*prompt, *generation.tokens, 300]
    evaluated = runtime.tokens_evaluated
    again = engine.run(asker.request(after, max_draft=0))
    assert again.tokens == asker.says(after)
    assert again.summary.cached_tokens == 0
    assert runtime.tokens_evaluated - evaluated == len(after) + len(again.tokens) - 1


class Hook:
    """Does something in the middle of a pass; to be given to a runtime as its `decode_seconds`."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.action: Callable[[], None] = lambda: None

    def __call__(self, tokens: int) -> float:  # noqa: ARG002
        if self._left == 0:
            self.action()
        self._left -= 1
        return 0.0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_request_cancelled_in_the_middle_of_a_pass_ends_with_that_pass(kind: str) -> None:
    """Whichever pass it is: what it decides is still told, and no other follows."""
    asker = Asker(kind)
    for number in range(10):
        hook = Hook(number)
        engine, runtime = engine_of(kind, slots=2, batch_size=64, decode_seconds=hook)
        listener = Listener()
        generation = engine.submit(asker.request(LONG), listener)

        def cancel(generation: Generation = generation) -> None:
            generation.cancelled = True

        hook.action = cancel
        play(engine)
        assert generation.state is GenerationState.CANCELLED
        # The prompt's last pass is followed by a round in the same step.
        assert runtime.passes == number + (2 if number == 1 else 1)
        assert listener.tokens == generation.tokens
        assert generation.tokens == asker.says(LONG)[: len(generation.tokens)]
        again = engine.run(asker.request(LONG))
        assert again.tokens == asker.says(LONG)
        assert again.summary.cached_tokens == 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_cancelling_one_leaves_the_others_alone(kind: str) -> None:
    """Case N2: the one beside it, and the one behind it in the queue."""
    asker = Asker(kind)
    for steps in range(8):
        engine, _ = engine_of(kind, asker.drafter([SHORT, OTHER]), slots=2)
        doomed, beside, behind = (
            engine.submit(asker.request(prompt), lambda _: None) for prompt in (SHORT, OTHER, SHORT)
        )
        for _ in range(steps):
            engine.step()
        doomed.cancelled = True
        play(engine)
        assert doomed.state is GenerationState.CANCELLED
        assert beside.tokens == asker.says(OTHER)
        assert behind.tokens == asker.says(SHORT)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_cancelling_a_waiting_request_leaves_the_running_one_alone(kind: str) -> None:
    """Case N2."""
    asker = Asker(kind)
    engine, runtime = engine_of(kind)
    running = engine.submit(asker.request(SHORT), lambda _: None)
    waiting = engine.submit(asker.request(OTHER), lambda _: None)
    engine.step()
    waiting.cancelled = True
    engine.step()
    assert waiting.state is GenerationState.CANCELLED
    assert waiting.sequence is None
    assert waiting.tokens == []
    play(engine)
    assert running.tokens == asker.says(SHORT)
    assert runtime.tokens_evaluated == len(SHORT) + len(running.tokens) - 1


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_request_cancelled_before_it_got_a_slot_costs_no_other_its_cache(kind: str) -> None:
    asker = Asker(kind)
    engine, _ = engine_of(kind)
    history = [*SHORT, *engine.run(asker.request(SHORT)).tokens]
    engine.submit(asker.request(OTHER), lambda _: None).cancelled = True
    engine.step()
    assert engine.idle
    after = engine.run(asker.request([*history, 300]))
    assert after.summary.cached_tokens == len(history) - 1


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_to_cancel_again_or_too_late_does_nothing(kind: str) -> None:
    engine, _, generation, listener = cancel_after(kind, SHORT, 3)
    for _ in range(3):
        generation.cancelled = True
        engine.step()
    assert [delta.state.over for delta in listener.deltas].count(True) == 1

    asker = Asker(kind)
    engine, _ = engine_of(kind)
    listener = Listener()
    generation = engine.submit(asker.request(SHORT), listener)
    play(engine)
    told = list(listener.deltas)
    generation.cancelled = True
    engine.step()
    assert generation.state is GenerationState.FINISHED
    assert listener.deltas == told
    # What it left in the slot is still good for the next turn.
    prompt = [*SHORT, *generation.tokens, 300]
    assert engine.run(asker.request(prompt)).summary.cached_tokens == len(prompt) - 2
