"""Answers are scored again at idle time, whatever was asked of them; what goes wrong is logged."""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Series
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import DecodeError, Feed, ScoreWish
from surefoot.engine import Agreement, Engine, Generation
from surefoot.runtime.base import ModelLoadError, Runtime
from tests.engine.playing import Asker, play, runtime_of
from tests.support.opener import Opener

PROMPT = list(range(70, 110))


def checked(
    sibling: Callable[[Runtime], Runtime] = lambda runtime: runtime, **fields: Any
) -> tuple[Generation, Agreement]:
    """An answer that was checked in a lane, and how that went."""
    runtime = runtime_of("hybrid")
    engine = Engine(runtime, opener=Opener(runtime, change=sibling), self_check=1.0)
    generation = engine.run(Asker("hybrid").request(PROMPT, **fields))
    play(engine)
    assert engine.self_check is not None
    assert not engine.self_check.pending
    return generation, engine.self_check.agreement


def with_few_outputs(runtime: Runtime) -> Runtime:
    """A runtime that refuses more outputs in a pass than it has room for, as libllama does."""
    decode = runtime.decode

    def refusing(feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        if sum(feed.outputs for feed in feeds) > 4:
            raise DecodeError("no room for outputs")
        return decode(feeds)

    runtime.decode = refusing  # type: ignore[method-assign]
    return runtime


@pytest.mark.parametrize("fields", [{}, {"wish": ScoreWish(2), "score_prompt": True}], ids=str)
def test_scores_that_were_wanted_are_not_made_again(
    fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    generation, agreement = checked(with_few_outputs, **fields)
    assert (agreement.answers, agreement.failed, agreement.wrong) == (1, 0, 0)
    assert agreement.equal == len(generation.tokens)
    assert not caplog.records


def warning_of(caplog: pytest.LogCaptureFixture) -> str:
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    return record.getMessage()


def test_a_check_that_fails_is_logged_with_its_request_and_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(runtime: Runtime) -> Runtime:
        def decode(feeds: Series[Feed]) -> list[NDArray[np.float32]]:  # noqa: ARG001
            raise DecodeError("out of memory")

        runtime.decode = decode  # type: ignore[method-assign]
        return runtime

    generation, agreement = checked(broken)
    assert (agreement.answers, agreement.failed) == (1, 1)
    assert f"request {generation.id} " in warning_of(caplog)
    assert "out of memory" in warning_of(caplog)


def test_a_lane_that_cannot_be_had_is_a_check_that_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def none(_: Runtime) -> Runtime:
        raise ModelLoadError("no room for a context")

    generation, agreement = checked(none)
    assert (agreement.answers, agreement.failed) == (1, 1)
    assert f"request {generation.id} " in warning_of(caplog)
    assert "no room for a context" in warning_of(caplog)


def test_a_wrong_answer_is_logged_with_its_request_and_the_position(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def mad(runtime: Runtime) -> Runtime:
        decode = runtime.decode

        def other(feeds: Series[Feed]) -> list[NDArray[np.float32]]:
            rows = decode(feeds)
            if feeds[0].outputs and feeds[0].start == len(PROMPT) + 4:
                rows[0] = rows[0].copy()
                rows[0][:, 7] = 1000.0
            return rows

        runtime.decode = other  # type: ignore[method-assign]
        return runtime

    generation, agreement = checked(mad)
    assert agreement.wrong == 1
    assert agreement.wrong_answers == [generation.id]
    assert f"request {generation.id} " in warning_of(caplog)
    assert f"position {len(PROMPT) + 5}," in warning_of(caplog)
