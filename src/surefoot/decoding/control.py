"""What decides about a text beside the model: a grammar, a schema, a thinking budget.

The state of a control moves on with committed tokens only, once for each and in order. Rounds
commit while they verify, so nothing is ever rolled back and no draft token is ever asked about
twice. `surefoot.constraints` makes controls.
"""

from collections.abc import Sequence as Series
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.errors import SurefootError

TokenMask = NDArray[np.uint32]
"""A set of tokens: token t is in it if bit t % 32 of word t // 32 is set."""


class ControlError(SurefootError):
    """A control failed, or leaves no token that could come next; it ends its own request only."""


class Control(Protocol):
    """Shapes one sequence's text, token by token."""

    def allowed(self) -> TokenMask | None:
        """The tokens that may come next; None for any.

        The array may be overwritten by the next call. It has at least one token in it.

        Raises:
            ControlError: there is none, or the control has failed.
        """

    def forced(self) -> Series[int]:
        """The tokens that come next without the model being asked; none if the model decides."""

    def permitted(self, draft: Series[int]) -> int:
        """How many tokens of a draft, from the first on, could be committed one after another.

        It is what saves rejected tokens their price; `allowed` decides.
        """

    def advance(self, token: int) -> None:
        """Take note of a committed token.

        Raises:
            ControlError: the token is not allowed here, or the control is finished.
        """

    @property
    def reasoning_tokens(self) -> int:
        """How many committed tokens lie inside the reasoning, its tags not counted."""

    @property
    def finished(self) -> str | None:
        """Why nothing may follow, such as "end of the grammar"; None if the text goes on."""
