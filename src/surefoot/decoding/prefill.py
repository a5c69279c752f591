"""Prefill: the memory absorbs committed tokens in chunks, with outputs only if they are scored."""

from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

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
    return absorb_together(target, [(sequence, most)])[0]


def absorb_together(target: Target, wanted: Series[tuple[Sequence, int]]) -> list[int]:
    """Let the memories of several sequences absorb tokens in one pass; see `absorb`.

    Args:
        target: the model.
        wanted: the sequences, and how many tokens each may absorb.

    Returns:
        How many tokens each has absorbed.

    Raises:
        DecodeError: the pass failed; the memories of all of them are unknown.
    """
    feeds = [_feed(target, sequence, most) for sequence, most in wanted]
    fed = [feed for feed in feeds if feed is not None]
    rows = iter(target.decode(fed) if fed else ())
    for (sequence, _), feed in zip(wanted, feeds, strict=True):
        if feed is not None:
            sequence.memory.absorbed(len(feed.tokens))
            _score(sequence, feed, next(rows))
    return [0 if feed is None else len(feed.tokens) for feed in feeds]


def _feed(target: Target, sequence: Sequence, most: int) -> Feed | None:
    """A sequence's part of a pass; None if there is nothing to absorb."""
    start = sequence.state_len
    width = min(most, len(sequence.pending) - 1)
    if target.widths is not None:
        width = target.widths.down(width)
    if width <= 0:
        return None
    tokens = sequence.committed[start : start + width]
    scored = sequence.score_prompt and start < sequence.prompt_length - 1
    return Feed(sequence.memory.id, tokens, start, outputs=width if scored else 0)


def _score(sequence: Sequence, feed: Feed, rows: NDArray[np.float32]) -> None:
    """Keep the scores of prompt tokens, if they are wanted."""
    if not feed.outputs or sequence.wish is None:
        return
    following = sequence.committed[feed.start + 1 : feed.start + len(feed.tokens) + 1]
    for row, token in zip(rows, following, strict=True):
        if len(sequence.prompt_scores) < sequence.prompt_length - 1:
            sequence.prompt_scores.append(raw_scores(row, token, sequence.wish.top))
