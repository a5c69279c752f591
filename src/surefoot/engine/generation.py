"""A generation: one request on its way through the engine, and what its client hears of it."""

import itertools
from collections.abc import Callable
from collections.abc import Sequence as Series
from enum import Enum
from typing import NamedTuple

from surefoot.decoding import Finish, Scores, Sequence
from surefoot.engine.request import Request
from surefoot.engine.summary import Summary
from surefoot.engine.text import Span, TextStream

_ids = itertools.count(1)


class GenerationState(Enum):
    """Where a generation stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (GenerationState.WAITING, GenerationState.RUNNING)


class Entry(NamedTuple):
    """A token whose text has been shown, or was to be.

    Attributes:
        token: the token.
        piece: its text as bytes, which may be part of a character; empty for an end token.
        scores: its log-probabilities, if they are wanted; None for a prompt's first token, too.
    """

    token: int
    piece: bytes
    scores: Scores | None = None


class Delta(NamedTuple):
    """What one round, or the end, added.

    Attributes:
        spans: new text, in order; may be empty while a character or stop string is incomplete.
        tokens: the committed tokens, an end token included.
        state: where the generation stands now; with a state that is over this is the last delta.
        entries: the tokens that the new text ends with or goes beyond. What is held back, and what
            a stop string has cut off, is not among them.
    """

    spans: list[Span]
    tokens: list[int]
    state: GenerationState
    entries: Series[Entry] = ()

    @property
    def text(self) -> str:
        """The new text."""
        return "".join(span.text for span in self.spans)


class Generation:
    """A request in progress. The engine writes it; a client reads it and may cancel it.

    Attributes:
        id: unique in this process.
        request: what was asked for.
        state: where it stands.
        sequence: its journal; None while it waits for a slot.
        summary: its figures so far.
        finish: why it ended, once it has finished.
        error: what went wrong, in words, if it failed.
        cancelled: set to ask for its end; it is honoured within one round.
        text: the text so far.
        entries: the tokens behind it; see `Delta`.
        prompt_entries: the prompt's tokens with their scores, once it has been absorbed; only if
            the request wants them.
        group: generations of the same prompt that were submitted together, this one included.
        submitted: when it was asked for, by the engine's clock.
    """

    def __init__(
        self, request: Request, listener: Callable[[Delta], None], submitted: float = 0.0
    ) -> None:
        self.id = next(_ids)
        self.submitted = submitted
        self.request = request
        self.state = GenerationState.WAITING
        self.sequence: Sequence | None = None
        self.summary = Summary(prompt_tokens=len(request.prompt))
        self.finish: Finish | None = None
        self.error: str | None = None
        self.cancelled = False
        self.text = ""
        self.entries: list[Entry] = []
        self.prompt_entries: list[Entry] = []
        self.group: list[Generation] = [self]
        self.stream: TextStream | None = None
        self._listener = listener
        self._told = 0

    def __str__(self) -> str:
        """One line that says how it went."""
        summary, counts = self.summary, self.summary.counts
        end = self.finish.cause if self.finish else self.error or self.state.value
        return (
            f"request {self.id}: {summary.prompt_tokens} prompt tokens ({summary.cached_tokens} "
            f"cached), {summary.generated_tokens} generated ({end}), {counts.rounds} rounds, "
            f"{counts.accepted} of {counts.drafted} drafted tokens accepted, "
            f"{summary.decode_tokens_per_s or 0:.0f} tokens/s"
        )

    @property
    def tokens(self) -> list[int]:
        """The generated tokens, an end token included."""
        if self.sequence is None:
            return []
        return self.sequence.committed[self.sequence.prompt_length :]

    def tell(self, accepted: int = 0) -> None:
        """Tell the client what is new.

        Args:
            accepted: how many of the new tokens, from the first on, were accepted draft tokens.
        """
        tokens = self.tokens[self._told :]
        self._told += len(tokens)
        spans: list[Span] = []
        if self.stream is not None:
            for index, token in enumerate(tokens):
                self.stream.append(token, drafted=index < accepted)
            spans = self.stream.read(final=self.state.over)
        entries = self._released()
        delta = Delta(spans, tokens, self.state, entries)
        self.text += delta.text
        self.entries += entries
        self._listener(delta)

    def _released(self) -> list[Entry]:
        """The tokens whose text has been shown since the last call."""
        if self.stream is None or self.sequence is None:
            return []
        start, scores = len(self.entries), self.sequence.scores
        return [
            Entry(
                token=self.tokens[index],
                piece=self.stream.piece(self.tokens[index]),
                scores=scores[index] if index < len(scores) else None,
            )
            for index in range(start, self.stream.released)
        ]
