"""The tokens of one pass, laid out in memory as libllama reads them.

The arrays are made once; a pass writes whole slices of them, so its cost in Python grows with the
number of sequences and not with the number of tokens.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import DecodeError, Feed, Rows
from surefoot.runtime.libllama import binding


class Batch:
    """Room for the tokens of one pass.

    Args:
        size: most tokens.
        positions: positions are below this number.
        sequences: sequence ids are below this number.
        vocabulary_size: token ids are below this number.
        row_size: length of the hidden row that goes in with each token; 0 for none.
    """

    def __init__(
        self,
        size: int,
        positions: int,
        sequences: int,
        vocabulary_size: int,
        row_size: int = 0,
    ) -> None:
        self._vocabulary_size = vocabulary_size
        self._tokens = np.zeros(size, np.int32)
        # Negative ids turn into huge ones here, so that one comparison finds both kinds.
        self._unsigned_tokens = self._tokens.view(np.uint32)
        self._positions = np.zeros(size, np.int32)
        self._every_position = np.arange(positions, dtype=np.int32)
        self._id_counts = np.ones(size, np.int32)
        self._every_id = np.arange(sequences, dtype=np.int32)
        self._id_addresses = np.zeros(size, np.uintp)
        addresses = self._every_id.ctypes.data + self._every_id.itemsize * np.arange(sequences)
        self._address_of_id: list[int] = addresses.tolist()
        self._outputs = np.zeros(size, np.int8)
        self._rows = np.zeros((size, row_size), np.float32)
        arrays: dict[str, NDArray[Any]] = {
            "token": self._tokens,
            "pos": self._positions,
            "n_seq_id": self._id_counts,
            "seq_id": self._id_addresses,
            "logits": self._outputs,
        }
        if row_size:
            arrays["embd"] = self._rows
        self.structure = binding.llama_batch(
            **{name: array.ctypes.data for name, array in arrays.items()}
        )

    def fill(self, feeds: Iterable[Feed], rows: Iterable[Rows] = ()) -> None:
        """Lay out a pass. The feeds have been checked, but for the values of their tokens.

        Args:
            feeds: the feeds.
            rows: for each of them the rows that go in with its tokens, if rows do.

        Raises:
            DecodeError: a token id is none.
        """
        end = 0
        for sequence, tokens, start, outputs, _ in feeds:
            width = len(tokens)
            begin, end = end, end + width
            try:
                self._tokens[begin:end] = tokens
            except (OverflowError, ValueError, TypeError) as error:
                raise DecodeError(f"sequence {sequence}: token ids expected ({error})") from None
            self._positions[begin:end] = self._every_position[start : start + width]
            self._id_addresses[begin:end] = self._address_of_id[sequence]
            self._outputs[begin : end - outputs] = 0
            self._outputs[end - outputs : end] = 1
        highest = int(self._unsigned_tokens[:end].max())
        if highest >= self._vocabulary_size:
            raise DecodeError(
                f"token id {np.int32(np.uint32(highest))} is none of the model's, which go from 0 "
                f"to {self._vocabulary_size - 1}"
            )
        self.structure.n_tokens = end
        end = 0
        for given in rows:
            begin, end = end, end + len(given)
            self._rows[begin:end] = given
