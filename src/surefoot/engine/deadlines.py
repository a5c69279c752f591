"""Deadlines: requests whose time is up end with what they have."""

from surefoot.decoding import Finish
from surefoot.engine.generation import Generation

DEADLINE = Finish("length", "deadline")
"""The request's `deadline_seconds` are over, wherever it stands."""

TIME_LIMIT = Finish("length", "time limit")
"""Its text has been written for longer than `max_predict_seconds`."""


def time_is_up(generation: Generation, now: float) -> Finish | None:
    """Why a generation has to end now; None if it may go on.

    Args:
        generation: waiting or running.
        now: by the engine's clock.
    """
    request = generation.request
    deadline, limit = request.deadline_seconds, request.max_predict_seconds
    if deadline is not None and now - generation.submitted >= deadline:
        return DEADLINE
    if limit is None or generation.first_token is None:
        return None
    # As in llama-server, where the limit is meant for completions of code: whole lines.
    return TIME_LIMIT if now - generation.first_token >= limit and _has_line(generation) else None


def _has_line(generation: Generation) -> bool:
    transcript = generation.sequence.ending.transcript if generation.sequence else None
    return transcript is not None and b"\n" in transcript.text
