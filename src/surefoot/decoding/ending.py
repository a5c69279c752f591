"""When a request is over: asked once for each token, at commit, in order.

Because commit is the only place, a token behind the end is never committed, whatever block of
accepted tokens it came in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from surefoot.decoding.transcript import Transcript


class Finish(NamedTuple):
    """Why a request ended: OpenAI's finish reason, and the cause in words."""

    reason: Literal["stop", "length"]
    cause: str


@dataclass(slots=True)
class Ending:
    """The conditions that end a request; the first that holds, in this order, is the reason.

    Attributes:
        end_of_generation: the model's own end tokens.
        stop_tokens: further token ids at which to stop.
        transcript: the generated text, which knows the stop strings; None if text is not wanted.
        piece: the bytes of a token's text; needed with a transcript.
        max_tokens: most tokens to generate; None for no limit.
        max_length: most tokens of prompt and answer together; None for no limit.
        shifts: whether a text that has become so long goes on, because its middle is given up then.
    """

    end_of_generation: frozenset[int] = frozenset()
    stop_tokens: frozenset[int] = frozenset()
    transcript: Transcript | None = None
    piece: Callable[[int], bytes] | None = None
    max_tokens: int | None = None
    max_length: int | None = None
    shifts: bool = False

    def after(self, token: int, generated: int, length: int) -> Finish | None:
        """Judge the token that was committed last; None if the request goes on.

        Args:
            token: the token.
            generated: how many tokens have been generated, this one included.
            length: how many tokens prompt and answer have together.
        """
        if token in self.end_of_generation:
            return Finish("stop", "end of generation")
        if token in self.stop_tokens:
            return Finish("stop", "stop token")
        if self.transcript is not None and self.piece is not None:
            self.transcript.append(self.piece(token))
            if self.transcript.stopped:
                return Finish("stop", "stop string")
        if self.max_tokens is not None and generated >= self.max_tokens:
            return Finish("length", "max tokens")
        if self.max_length is not None and length >= self.max_length and not self.shifts:
            return Finish("length", "context full")
        return None

    def room(self, generated: int, length: int) -> int:
        """How many more tokens the limits allow; at least 1 while the request goes on, once a
        context that is full has been shifted."""
        limits = []
        if self.max_tokens is not None:
            limits.append(self.max_tokens - generated)
        if self.max_length is not None:
            limits.append(self.max_length - length)
        return min(limits, default=1 << 30)
