"""Whatever goes wrong in one request's choices ends that request, and nobody else's (case G11)."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from surefoot.constraints import ControlSpec, Grammar
from surefoot.decoding import Chooser, Sampling, Sequence, Widths
from surefoot.engine import Engine, GenerationState, Lane, LaneParts, Request
from surefoot.engine.making import Maker
from surefoot.engine.slot import Slot
from surefoot.runtime.base import ModelLoadError
from tests.engine.playing import Asker, engine_of, play, run_all, runtime_of

HONEST = Maker.sequence
PROMPTS = [[65, 66, 67], [70, 71]]


def alone(kind: str, prompt: list[int]) -> list[int]:
    return Asker(kind).says(prompt)


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_a_choice_that_raises_ends_its_own_request(kind: str) -> None:
    engine, _ = engine_of(kind, slots=2)
    asker, seed = Asker(kind), 77
    honest = Chooser.choose

    def choose(self: Chooser, *arguments: Any) -> Any:
        if self.sampling.seed == seed:
            raise OverflowError("too large")
        return honest(self, *arguments)

    with patch.object(Chooser, "choose", choose):
        bad = Request(tuple(PROMPTS[0]), Sampling(seed=seed, temperature=1.0), max_tokens=9)
        first, second = run_all(engine, [bad, asker.request(PROMPTS[1])])
    assert first.state is GenerationState.FAILED
    assert "too large" in (first.error or "")
    assert second.state is GenerationState.FINISHED
    assert second.tokens == alone(kind, PROMPTS[1])
    [again] = run_all(engine, [asker.request(PROMPTS[0])])
    assert again.tokens == alone(kind, PROMPTS[0])


def test_a_request_that_cannot_be_begun_ends_alone() -> None:
    engine, _ = engine_of("attention", slots=2)
    spec = ControlSpec(Grammar("regex", "[a-z]+"))
    generation = engine.submit(Request((65,), control=spec, max_tokens=4), lambda _: None)
    other = engine.submit(Asker("attention").request(PROMPTS[1]), lambda _: None)
    with patch.object(Maker, "sequence", _broken):
        play(engine)
    assert generation.state is GenerationState.FAILED
    assert other.state is GenerationState.FINISHED
    assert engine.idle


def _broken(maker: Maker, request: Request, lane: Lane, slot: Slot) -> Sequence:
    if request.control is not None:
        raise RuntimeError("no memory")
    return HONEST(maker, request, lane, slot)


@pytest.mark.parametrize("tau", [513.0, 1e300])
def test_mirostat_takes_any_target(tau: float) -> None:
    row = np.random.default_rng(1).normal(size=300).astype(np.float32)
    choice = Chooser(Sampling(mirostat=1, mirostat_tau=tau, temperature=1.0)).choose(row, 0.0)
    assert 0 <= choice.token < 300


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_bans_that_contradict_the_rules_cost_nobody_else_anything(kind: str) -> None:
    """A neighbour must not absorb its prompt again for it."""
    engine, runtime = engine_of(kind, slots=2)
    asker = Asker(kind)
    other = engine.submit(asker.request(PROMPTS[1], max_tokens=30), lambda _: None)
    bans = tuple((token, -np.inf) for token in range(runtime.vocabulary_size))
    refused = Request((65,), Sampling(logit_bias=bans), max_tokens=4)
    generation = engine.submit(refused, lambda _: None)
    play(engine)
    assert generation.state is GenerationState.FAILED
    assert "no token is left" in (generation.error or "")
    assert generation.summary.recoveries == 0
    assert other.state is GenerationState.FINISHED
    assert other.summary.recoveries == 0


def test_a_strict_request_without_room_for_a_lane_ends_alone() -> None:
    engine = Engine(runtime_of("attention", slots=2), opener=NoRoom())
    asker = Asker("attention")
    other = engine.submit(asker.request(PROMPTS[1], max_tokens=30), lambda _: None)
    strict = engine.submit(Request((65,), exact="strict", max_tokens=4), lambda _: None)
    play(engine)
    assert strict.state is GenerationState.FAILED
    assert "no room" in (strict.error or "")
    assert other.state is GenerationState.FINISHED


class NoRoom:
    """Knows a width class, and can open no lane."""

    widths = Widths((2, 3))
    refusal = ""

    def describe(self) -> dict[str, Any]:
        return {}

    def open(self, widths: Widths | None, *, drafts: bool) -> LaneParts:  # noqa: ARG002
        raise ModelLoadError("there is no room for another context")
