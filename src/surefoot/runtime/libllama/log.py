"""libllama's own log: to Python's logging, and to whoever looks for the reason of a failure.

Everything goes to the logger "surefoot.libllama" at level DEBUG, errors included: what matters to
a user is raised as an exception, with the reason in it.
"""

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from surefoot.runtime.libllama import binding

_logger = logging.getLogger("surefoot.libllama")
_CONTINUED = 5
_ERROR = 4
_LEVELS = {2: "info", 3: "warning", _ERROR: "error"}


class Line(NamedTuple):
    """One line of libllama's log.

    Attributes:
        is_error: whether libllama called it an error.
        text: the line, function name in front.
    """

    is_error: bool
    text: str


_captures: list[list[Line]] = []
_unfinished = Line(is_error=False, text="")


@binding.llama_log_callback
def _forward(level: int, text: bytes, _: int | None) -> None:
    """Take a piece of log, which ends in a newline unless more of the line is to come."""
    global _unfinished
    is_error = level == _ERROR or (level == _CONTINUED and _unfinished.is_error)
    line = Line(is_error, _unfinished.text + text.decode(errors="replace"))
    if not line.text.endswith("\n"):
        _unfinished = line
        return
    _unfinished = Line(is_error=False, text="")
    line = line._replace(text=line.text.rstrip())
    for capture in _captures:
        capture.append(line)
    if line.text:
        _logger.debug("%s: %s", _LEVELS.get(level, "debug"), line.text)


@functools.cache
def start() -> None:
    """Take over the log and start libllama's backends; again has no effect."""
    binding.llama_log_set(_forward, None)
    binding.llama_backend_init()


@contextmanager
def captured() -> Iterator[list[Line]]:
    """Collect what libllama logs inside the block."""
    lines: list[Line] = []
    _captures.append(lines)
    try:
        yield lines
    finally:
        _captures[:] = [capture for capture in _captures if capture is not lines]


def reason(lines: list[Line]) -> str:
    """The first error, which is the most specific one, without the function's name."""
    errors = [line.text for line in lines if line.is_error]
    return errors[0].partition(": ")[2].strip() if errors else "libllama gave no reason"
