"""How libllama cuts a pass into graph runs.

Follows the rules of `llama_batch_allocr::split_equal` and its callers in llama-memory-*.cpp
(release v0.5.0, inside llama-cpp-python 0.3.36), which nothing in the public API tells. It decides
no token; it counts runs, and says which sequences' snapshots outlive the pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class Cutting:
    """What decides about the pieces.

    Attributes:
        most: most tokens in one piece.
        recurrent: whether any layer is recurrent; then every sequence in a piece has the same
            number of tokens. Pure attention is simply cut every `most` tokens.
        consecutive: whether the ids of the sequences in a piece must follow each other, which
            memory without any attention asks for.
        snapshots: recurrent states kept; a sequence's last 1 + snapshots tokens stay together.
    """

    most: int
    recurrent: bool
    consecutive: bool
    snapshots: int

    def runs(self, widths: Mapping[int, int]) -> int:
        """How many graph runs a pass takes.

        Without limits it is the number of distinct widths: the first run takes as many tokens of
        every sequence as the narrowest has, the next goes on with the others, and so on.

        Args:
            widths: tokens of each sequence in the pass, by sequence id, in the batch's order.
        """
        if not self.recurrent or len(widths) == 1:
            total = sum(widths.values())
            return 1 if total <= self.most else -(-total // self.most)
        return len(self.pieces(widths))

    def pieces(self, widths: Mapping[int, int]) -> list[list[int]]:
        """The sequences in each piece, for memory with recurrent layers."""
        left = dict(widths)
        pieces = []
        while left:
            piece = self._candidates(left)
            taken = min(min(left[i] for i in piece), max(1, self.most // len(piece)))
            if self.snapshots:
                piece, taken = self._with_whole_tails(piece, taken, left)
            for sequence in piece:
                left[sequence] -= taken
                if not left[sequence]:
                    del left[sequence]
            pieces.append(piece)
        return pieces

    def _candidates(self, left: Mapping[int, int]) -> list[int]:
        piece: list[int] = []
        for sequence in left:
            if not self.consecutive or not piece or sequence == piece[-1] + 1:
                piece.append(sequence)
        return piece

    def _with_whole_tails(
        self, piece: list[int], taken: int, left: Mapping[int, int]
    ) -> tuple[list[int], int]:
        """Leave out sequences whose last tokens would be torn apart."""
        tail = self.snapshots + 1
        kept = list(takewhile(lambda i: not 0 < left[i] - taken < tail, piece))
        if kept:
            return kept, taken
        whole = left[piece[0]]
        return piece[:1], whole if whole <= self.most else min(taken, whole - tail)

    def undisturbed(self, widths: Mapping[int, int]) -> dict[int, int]:
        """The sequences whose snapshots are still good after a pass, with their widths.

        Each piece gathers the states of its sequences side by side and may move another
        sequence's state out of the way, but not that one's snapshots. A piece of one sequence
        moves nothing.
        """
        pieces = self.pieces(widths)
        good: dict[int, int] = {}
        for piece in pieces:
            if len(piece) > 1:
                good.clear()
            good.update((sequence, widths[sequence]) for sequence in piece)
        return good
