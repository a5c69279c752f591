"""Prefill: the memory absorbs committed tokens in chunks, without outputs."""

from surefoot.decoding.sequence import Sequence
from surefoot.decoding.target import Feed, Target


def absorb(target: Target, sequence: Sequence, most: int) -> int:
    """Let the memory absorb up to `most` pending tokens, all but the last.

    The last committed token stays pending: the next round decodes it together with its draft.

    Returns:
        How many tokens were absorbed; 0 if only the last one is pending.

    Raises:
        DecodeError: the pass failed; the sequence's memory is unknown.
    """
    start = sequence.state_len
    tokens = sequence.committed[start : min(start + most, len(sequence.committed) - 1)]
    if tokens:
        target.decode([Feed(sequence.memory.id, tokens, start, outputs=0)])
        sequence.memory.absorbed(len(tokens))
    return len(tokens)
