"""What a context can do to undo tokens, found out by trying it.

Each trial treats a sequence's memory in some way, decodes a few tokens, and compares their logits
with those of a straight decode. What is refused, or gives other logits, is not possible.
"""

import logging
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import DecodeError, Feed, Rollback, RollbackRefusedError, Target

_logger = logging.getLogger("surefoot.runtime")
_LIVE = 0


def probe_rollback(target: Target, spare: int, snapshots: int) -> Rollback:
    """Try out forks, cuts and snapshots on empty memory, and leave it empty.

    Args:
        target: the model. Its `cut` must try what it is told, whatever `rollback` says so far.
        spare: a sequence id for forks, besides 0.
        snapshots: how many recurrent states the context keeps.

    Raises:
        DecodeError: a plain pass failed.
    """
    probe = _Probe(target, spare)
    probe.measure()
    fork = probe.shows("a fork", probe.fork_twice, straight=(4, 2, 3))
    if probe.shows("any cut", partial(probe.cut_passes, snapshots + 2), straight=(2, 2)):
        return Rollback(cut=None, fork=fork)
    width = snapshots + 2
    cut = 0
    for undone in range(1, snapshots + 1):
        kept = width - undone
        trial = partial(probe.cut_tail, kept, undone)
        if not probe.shows(f"a cut of {undone}", trial, straight=(4, kept, 2)):
            break
        cut = undone
    return Rollback(cut=cut, fork=fork)


class _Probe:
    """Trials on one live sequence, and a spare.

    The tokens at each position are always the same, "right" ones, but for drafts, which are
    "wrong" and must leave no trace. Differences are root mean squares over a row of logits.
    """

    def __init__(self, target: Target, spare: int) -> None:
        self._target = target
        self._spare = spare
        self._length = 0
        self._yardstick = 0.0

    def measure(self) -> None:
        """See how far logits move when the memory is not what it should be.

        Widths and layout move them too, but far less: on the trained hybrid 0.1 to 0.4 at most
        positions, where two wrong tokens make it 3. A quarter of the way tells them apart.
        """
        self._right(4)
        self._wrong(2)
        wrong = self._right(3)
        self._clear()
        self._yardstick = _difference(wrong, self._straight((4, 2, 3)))

    def shows(
        self, what: str, trial: Callable[[], NDArray[np.float32]], straight: tuple[int, ...]
    ) -> bool:
        """Whether a trial ends with the logits of a straight decode in passes of such widths."""
        try:
            found = trial()
        except (DecodeError, RollbackRefusedError) as error:
            _logger.info("roll-back: %s is not possible: %s", what, error)
            return False
        finally:
            self._clear()
        difference = _difference(found, self._straight(straight))
        possible = difference < self._yardstick / 4
        _logger.info(
            "roll-back: %s %s (logits differ by %.2g; by %.2g where memory is wrong)",
            what,
            "works" if possible else "is not possible: it changes what follows",
            difference,
            self._yardstick,
        )
        return possible

    def fork_twice(self) -> NDArray[np.float32]:
        """Let the spare follow, reject a draft, and go back to the spare's state; twice."""
        self._right(4)
        self._reject_by_fork(since=0)
        self._right(2)
        self._reject_by_fork(since=4)
        return self._right(3)

    def cut_passes(self, draft: int) -> NDArray[np.float32]:
        """Cut the last pass and the one before, which no snapshot reaches."""
        self._right(2)
        self._wrong(2)
        self._wrong(draft)
        self._cut(2)
        return self._right(2)

    def cut_tail(self, kept: int, undone: int) -> NDArray[np.float32]:
        """Cut a few tokens of the last pass."""
        self._right(4)
        right = self._tokens(kept)
        self._decode([*right, *self._wrong_tokens(undone, since=self._length + kept)])
        self._cut(4 + kept)
        return self._right(2)

    def _reject_by_fork(self, since: int) -> None:
        length = self._length
        self._target.fork(_LIVE, self._spare, since, length)
        self._wrong(3)
        self._target.fork(self._spare, _LIVE, length - 1, length)
        self._cut(length)

    def _straight(self, widths: tuple[int, ...]) -> NDArray[np.float32]:
        for width in widths:
            last = self._right(width)
        self._clear()
        return last

    def _right(self, width: int) -> NDArray[np.float32]:
        return self._decode(self._tokens(width))

    def _wrong(self, width: int) -> None:
        self._decode(self._wrong_tokens(width, self._length))

    def _tokens(self, width: int) -> list[int]:
        """Token ids spread over the vocabulary, the same at every visit of a position."""
        size = self._target.vocabulary_size
        return [(7919 * (i + 1)) % size for i in range(self._length, self._length + width)]

    def _wrong_tokens(self, width: int, since: int) -> list[int]:
        size = self._target.vocabulary_size
        return [(7919 * (i + 1) + size // 2) % size for i in range(since, since + width)]

    def _decode(self, tokens: list[int]) -> NDArray[np.float32]:
        rows = self._target.decode([Feed(_LIVE, tokens, self._length, outputs=1)])
        self._length += len(tokens)
        return rows[0].copy()

    def _cut(self, length: int) -> None:
        if not self._target.cut(_LIVE, length):
            raise RollbackRefusedError(f"refused at {self._length} tokens to go to {length}")
        self._length = length

    def _clear(self) -> None:
        self._target.drop(_LIVE)
        self._target.drop(self._spare)
        self._length = 0


def _difference(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(one - other))))
