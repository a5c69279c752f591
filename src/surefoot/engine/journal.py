"""A journal: all that the client of a generation is to know of it, whoever computes it.

The engine tells what it decides as `Progress`, plain data without any text. The journal keeps the
tokens, makes text of them and passes it on. So it outlives an engine: what it holds is enough for
another one to go on.
"""

import itertools
from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from surefoot.decoding import Finish, Scores, Transcript
from surefoot.engine.request import Request, Resumed
from surefoot.engine.summary import Summary
from surefoot.engine.text import Span, TextStream
from surefoot.engine.vocabulary import piece_for
from surefoot.runtime.base import Tokenizer

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


class Progress(NamedTuple):
    """What an engine has decided of a generation since it told of it last.

    Attributes:
        tokens: the tokens committed, an end token included.
        accepted: how many of them, from the first on, were accepted draft tokens.
        state: where the generation stands now.
        scores: of each of the tokens, if they are wanted.
        near_ties: positions of the tokens that logit noise might have made others.
        mu: mirostat's state behind the tokens; None without it.
        prompt_scores: of each prompt token but the first, the first time, if they are wanted.
        summary: figures so far; always there at the end.
        finish: why it ended, if it has finished.
        error: what went wrong, in words, if it failed.
        retry_after: seconds after which the same request may be tried again, if it has failed only
            because the server was busy; None else.
        own_fault: whether it failed for what it asks for.
    """

    tokens: list[int]
    accepted: int
    state: GenerationState
    scores: list[Scores]
    near_ties: list[int]
    mu: float | None = None
    prompt_scores: list[Scores] | None = None
    summary: Summary | None = None
    finish: Finish | None = None
    error: str | None = None
    retry_after: int | None = None
    own_fault: bool = False


class Journal:
    """A request in progress, as its client sees it.

    Args:
        request: what is asked for.
        listener: called with each delta; the last one has a state that is over.
        tokenizer: has the texts of the tokens.
        submitted: when it was asked for, in seconds by any clock that goes on.

    Attributes:
        id: unique in this process.
        request: the same.
        submitted: the same.
        first_token: when its first token was seen to be there, by that clock; None while there is
            none.
        state: where it stands.
        summary: its figures, as far as they were told; all of them at the end.
        finish: why it ended, once it has finished.
        error: what went wrong, in words, if it failed.
        retry_after: seconds after which the same request may be tried again; see `Progress`.
        own_fault: whether it failed for what it asks for.
        cancelled: set to ask for its end; it is honoured within one round.
        tokens: the generated tokens, an end token included.
        text: the text so far.
        entries: the tokens behind it; see `Delta`.
        prompt_entries: the prompt's tokens with their scores, once it has been absorbed; only if
            the request wants them.
        group: those of the same prompt that were submitted together, this one included.
    """

    def __init__(
        self,
        request: Request,
        listener: Callable[[Delta], None],
        tokenizer: Tokenizer,
        submitted: float = 0.0,
    ) -> None:
        self.id = next(_ids)
        self.request = request
        self.submitted = submitted
        self.first_token: float | None = None
        self.state = GenerationState.WAITING
        self.summary = Summary(prompt_tokens=len(request.prompt))
        self.finish: Finish | None = None
        self.error: str | None = None
        self.retry_after: int | None = None
        self.own_fault = False
        self.cancelled = False
        self.tokens: list[int] = []
        self.text = ""
        self.entries: list[Entry] = []
        self.prompt_entries: list[Entry] = []
        self.group: Series[Journal] = [self]
        self._listener = listener
        self._piece = piece_for(tokenizer, request.markup)
        self._ends = tokenizer.end_of_generation | request.stop_tokens
        self._transcript = Transcript(request.stops)
        self._stream = TextStream(self._transcript, self._piece)
        self._scores: list[Scores] = []
        self._near_ties: list[int] = []
        self._mu: float | None = None
        self._lived: Summary | None = None

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

    def hear(self, progress: Progress) -> None:
        """Take down what the engine has decided, and tell the client what is new."""
        self.state = progress.state
        self._note(progress)
        for index, token in enumerate(progress.tokens):
            if token not in self._ends:
                self._transcript.append(self._piece(token))
            self._stream.append(token, drafted=index < progress.accepted)
        spans = self._stream.read(final=self.state.over)
        entries = [
            Entry(token, self._piece(token), self._scores[index] if self._scores else None)
            for index, token in self._released()
        ]
        delta = Delta(spans, progress.tokens, self.state, entries)
        self.text += delta.text
        self.entries += entries
        self._listener(delta)

    def _note(self, progress: Progress) -> None:
        self.tokens += progress.tokens
        self._scores += progress.scores
        self._near_ties += progress.near_ties
        self._mu = progress.mu
        if progress.prompt_scores is not None and not self.prompt_entries:
            scores = [None, *progress.prompt_scores]
            prompt = self.request.prompt
            self.prompt_entries = [
                Entry(t, self._piece(t), s) for t, s in zip(prompt, scores, strict=False)
            ]
        if progress.summary is not None:
            summary = progress.summary
            self.summary = summary if self._lived is None else self._lived.then(summary)
        self.finish = progress.finish
        self.error = progress.error
        self.retry_after = progress.retry_after
        self.own_fault = progress.own_fault

    def _released(self) -> list[tuple[int, int]]:
        """The tokens, with their places, whose text has been shown since the last call."""
        start = len(self.entries)
        return list(enumerate(self.tokens[start : self._stream.released], start))

    # Going on in another engine

    def resumption(self) -> Request:
        """The request with what is decided already; the next progress is of an engine's that
        begins with it."""
        lost = self.state is GenerationState.RUNNING
        if lost:
            recoveries = self.summary.recoveries + 1
            self.summary = self._lived = replace(self.summary, recoveries=recoveries)
        self.state = GenerationState.WAITING
        if not self.tokens:
            return self.request
        return replace(
            self.request,
            score_prompt=self.request.score_prompt and not self.prompt_entries,
            resumed=Resumed(tuple(self.tokens), tuple(self._near_ties), self._mu),
        )
