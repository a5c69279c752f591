"""Prefill: the memory absorbs committed tokens in chunks, with outputs only if they are scored."""

from surefoot.decoding.scores import raw_scores
from surefoot.decoding.sequence import Sequence
from surefoot.decoding.target import Feed, Target


def absorb(target: Target, sequence: Sequence, most: int) -> int:
    """Let the memory absorb up to `most` pending tokens, all but the last.

    The last committed token stays pending: the next round decodes it together with its draft. In a
    width class more may stay pending, if they are too few for a pass.

    Returns:
        How many tokens were absorbed; 0 if all that can be is.

    Raises:
        DecodeError: the pass failed; the sequence's memory is unknown.
    """
    start = sequence.state_len
    width = min(most, len(sequence.pending) - 1)
    if target.widths is not None:
        width = target.widths.down(width)
    if width <= 0:
        return 0
    tokens = sequence.committed[start : start + width]
    scored = sequence.score_prompt and start < sequence.prompt_length - 1
    feed = Feed(sequence.memory.id, tokens, start, outputs=width if scored else 0)
    [rows] = target.decode([feed])
    sequence.memory.absorbed(width)
    if scored and sequence.wish is not None:
        following = sequence.committed[start + 1 : start + width + 1]
        for row, token in zip(rows, following, strict=True):
            if len(sequence.prompt_scores) < sequence.prompt_length - 1:
                sequence.prompt_scores.append(raw_scores(row, token, sequence.wish.top))
    return width
