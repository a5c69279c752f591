"""Whether a context can take tokens out of the middle of a sequence, found out by trying it."""

import logging

import numpy as np

from surefoot.decoding import DecodeError, Feed, Target
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.memory import SequenceMemory

_logger = logging.getLogger("surefoot.runtime")
_LIVE = 0


def probe_shift(target: Target, memory: SequenceMemory, handle: int, window: int) -> str:
    """Try a shift on empty memory, and leave it empty.

    Args:
        target: the model; its ways back have been found out.
        memory: its sequences.
        handle: libllama's memory.
        window: tokens that sliding-window attention looks back; 0 if there is none.

    Returns:
        Why it is not possible, in words; empty if it is.
    """
    if target.rollback.cut is not None:
        return (
            "its memory is recurrent, or partly so, and what has gone into a recurrent state can't "
            "be taken out again"
        )
    if window:
        return f"its attention has a sliding window of {window} tokens"
    if not binding.llama_memory_can_shift(handle):
        return "the positions in its memory can't be moved (a rotary embedding of several axes?)"
    try:
        return _trial(target, memory)
    except DecodeError as error:
        _logger.info("context shift: %s", error)
        return f"a trial failed ({error})"
    finally:
        target.drop(_LIVE)


def _trial(target: Target, memory: SequenceMemory) -> str:
    """Take two tokens of seven out, and run a pass behind the others."""
    size = target.vocabulary_size
    tokens = [(7919 * (i + 1)) % size for i in range(8)]
    target.decode([Feed(_LIVE, tokens[:7], 0, outputs=1)])
    if not memory.shift(_LIVE, 2, 2) or memory.length(_LIVE) != 5:
        return "libllama refused a trial"
    [rows] = target.decode([Feed(_LIVE, tokens[7:], 5, outputs=1)])
    if not np.isfinite(rows).all():
        return "a trial gave logits that are no numbers"
    return ""
