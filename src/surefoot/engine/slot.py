"""A slot: one live sequence id of the model's memory, and who uses it.

Between two requests a slot keeps what its memory has absorbed, so that the next turn of the same
conversation goes on from there.
"""

from surefoot.decoding import Memory, RollbackRefusedError, Sequence
from surefoot.engine.generation import Generation


class Slot:
    """One place for a running generation.

    Attributes:
        memory: the slot's memory in the model.
        generation: who runs here; None if the slot is idle.
        prefilling: whether the memory still has to absorb the prompt.
        prefilled: the number of the last prefill pass for it; 0 for none yet.
        entered: when the generation came in, by time.perf_counter.
        failures: failed passes since the generation last committed a token.
        last_used: the engine's clock when the slot was last given back.
        leader: the slot that prefills this one's prompt, too; None if it does so itself.
        stops: the lengths at which the prefill stops for its state to be kept.
        checkpoint: the length at which a state was kept last, or with which the request began.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.generation: Generation | None = None
        self.prefilling = False
        self.prefilled = 0
        self.entered = 0.0
        self.failures = 0
        self.last_used = 0
        self.leader: Slot | None = None
        self.stops: list[int] = []
        self.checkpoint = 0
        self._history: list[int] = []

    @property
    def running(self) -> tuple[Generation, Sequence]:
        """The generation of a busy slot, and its sequence."""
        assert self.generation is not None
        assert self.generation.sequence is not None
        return self.generation, self.generation.sequence

    @property
    def held(self) -> list[int]:
        """The tokens that the memory holds; none where it was shifted, since it holds no text's
        state then."""
        if self.generation is None:
            return self._history[: self.memory.length]
        sequence = self.running[1]
        if self.memory.length > sequence.intact:
            return []
        return sequence.committed[: self.memory.length]

    def drop_shifted(self) -> None:
        """Take the memory back to before the first gap, if its text was shifted."""
        sequence = self.running[1]
        if self.memory.length > sequence.intact:
            try:
                self.memory.settle(sequence.intact)
            except RollbackRefusedError:
                self.memory.clear()

    def chunk(self, most: int) -> int:
        """How many tokens to absorb next, so that a pass ends at the next stop."""
        ahead = [stop - self.memory.length for stop in self.stops if stop > self.memory.length]
        return min([most, *ahead])

    def reusable(self, prompt: tuple[int, ...]) -> int:
        """How many tokens of a prompt the memory could go on from."""
        shared = common_prefix(self._history[: self.memory.length], prompt)
        return self.memory.reach(min(shared, len(prompt) - 1))

    def rewind(self, prompt: tuple[int, ...]) -> int:
        """Take the memory back to what it shares with a prompt; returns how many tokens that is."""
        try:
            self.memory.settle(self.reusable(prompt))
        except RollbackRefusedError:
            self.memory.clear()
        return self.memory.length

    def release(self, clock: int, history: list[int]) -> None:
        """Give the slot back; the memory stays, for who comes next with the same history."""
        self.generation = None
        self.prefilling = False
        self.prefilled = 0
        self.leader = None
        self.stops = []
        self.last_used = clock
        self._history = history

    def adopt(self, history: list[int]) -> None:
        """Take note that an idle slot's memory holds a text now that no request of it left."""
        self._history = history

    def discard(self, clock: int) -> None:
        """Give the slot back and forget what its memory holds: it was cancelled or has failed."""
        self.release(clock, history=[])
        self.memory.clear()


def common_prefix(first: list[int], second: tuple[int, ...]) -> int:
    """Length of the longest common prefix, by bisection so that whole slices are compared."""
    low, high = 0, min(len(first), len(second))
    known = tuple(first[:high])
    while low < high:
        middle = (low + high + 1) // 2
        if known[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
