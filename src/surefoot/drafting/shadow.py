"""A shadow: what a second model has absorbed of the text in one of the target's slots.

It goes by the tokens themselves. Whatever happened since it was last looked at (a rejected draft,
another request, a cancelled one, a target that had to begin again), it keeps what the text still
begins with, as far as its memory can go back, and the rest is owed.
"""

from itertools import islice

from surefoot.decoding import Memory, RollbackRefusedError, Sequence


class Shadow:
    """A memory, and the tokens that went into it.

    Args:
        memory: the slot's memory in the second model, which is emptied.

    Attributes:
        memory: the same.
        sequence: whose text it follows; None between two requests.
        failures: failed attempts in a row to draft for that sequence.
        silent: whether nothing can be drafted for that sequence any more.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.sequence: Sequence | None = None
        self.failures = 0
        self.silent = False
        self._tokens: list[int] = []
        self._agreed = 0
        """So many tokens are known to be the sequence's."""
        self.clear()

    def follow(self, sequence: Sequence) -> None:
        """Go back to what the memory shares with a sequence; at least its last token is owed.

        For the same sequence as before only what is new is compared. What an earlier request left
        may be out of reach (a sliding window has moved on); then all of the text is owed.

        Raises:
            RollbackRefusedError: the memory did not go back, and must be taken as unknown.
        """
        new = sequence is not self.sequence
        if new:
            self.sequence = sequence
            self.failures = self._agreed = 0
            self.silent = False
        shared = _common_prefix(self._tokens, sequence.committed, self._agreed)
        try:
            self.memory.settle(min(shared, len(sequence.committed) - 1))
        except RollbackRefusedError:
            if not new:
                raise
            self.memory.clear()
        del self._tokens[self.memory.length :]
        self._agreed = len(self._tokens)

    def absorbed(self, tokens: list[int]) -> None:
        """Take note of a pass that added tokens."""
        self.memory.absorbed(len(tokens))
        self._tokens += tokens

    def clear(self) -> None:
        """Forget all that was absorbed."""
        self.memory.clear()
        self._tokens.clear()
        self._agreed = 0


def _common_prefix(first: list[int], second: list[int], known: int) -> int:
    """Length of the longest common prefix, which has `known` tokens at least."""
    pairs = zip(islice(first, known, None), islice(second, known, None), strict=False)
    differing = (known + index for index, (one, other) in enumerate(pairs) if one != other)
    return next(differing, min(len(first), len(second)))
