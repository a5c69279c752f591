"""States of single sequences as bytes: saved, and put back bit for bit."""

import ctypes

from surefoot.runtime.base import StateError
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.memory import SequenceMemory


class States:
    """Saves and loads the states of a context's sequences.

    Args:
        context: libllama's handle.
        memory: the context's.
    """

    def __init__(self, context: int, memory: SequenceMemory) -> None:
        self._context = context
        self._memory = memory

    def size(self, sequence: int) -> int:
        """Bytes of a sequence's state, with what frames it."""
        return binding.llama_state_seq_get_size_ext(self._context, sequence, binding.STATE_WHOLE)

    def fixed_size(self, sequence: int) -> int:
        """Bytes of that part of it which does not grow with the text: recurrent states."""
        return binding.llama_state_seq_get_size_ext(self._context, sequence, binding.STATE_PARTIAL)

    def save(self, sequence: int) -> bytes:
        """All that a sequence holds.

        Raises:
            StateError: it was cut by way of a snapshot and has not been decoded since, or libllama
                did not give as many bytes as it had said.
        """
        if not self._memory.whole(sequence):
            raise StateError(
                f"the state of sequence {sequence} can't be saved: it was cut by way of a "
                "snapshot, and must be in a pass first"
            )
        size = self.size(sequence)
        buffer = (ctypes.c_uint8 * size)()
        written = binding.llama_state_seq_get_data_ext(
            self._context, buffer, size, sequence, binding.STATE_WHOLE
        )
        if written != size:
            raise StateError(f"libllama gave {written} of {size} bytes of a state")
        return bytes(buffer)

    def load(self, sequence: int, state: bytes) -> None:
        """Put a saved state back, in place of what a sequence holds.

        Raises:
            StateError: libllama does not take it: it is damaged, is another model's, or there are
                too few free cells. The sequence is empty then.
        """
        self._memory.drop(sequence)
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        read = binding.llama_state_seq_set_data_ext(
            self._context, buffer, len(state), sequence, binding.STATE_WHOLE
        )
        if read != len(state):
            self._memory.drop(sequence)
            raise StateError(
                f"libllama does not take a state of {len(state)} bytes: it is not one of this "
                "model's, or there is no room for it"
            )
        self._memory.loaded(sequence)
