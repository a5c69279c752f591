"""`draft-simple`: a smaller model with the target's tokens guesses how the text goes on.

The draft model has memory of its own, which goes back in whatever way it can (a cut, or a fork,
so that recurrent and hybrid models draft as well as others). What was committed since the last
draft is absorbed in the same pass that gives the next draft's first token, and the fork is taken
right behind it. So a draft costs one pass for each of its tokens and no more, on every kind of
memory; all sequences that draft share the passes. (llama-server, build 11434, feeds its draft
model every batch of the target's as well, rejected drafts included: one more pass a round.)

At temperature 0 it proposes its own most likely token. Above, it chooses from its own
distribution by the target's rule, with the sequence's own sampling parameters and noise at the
token's position; so two models that agree choose alike, however random the choice is. For a
sequence that verifies by rejection it draws with noise of its own, and hands over from what.
"""

import logging
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import (
    DecodeError,
    Distribution,
    Draft,
    Feed,
    RollbackRefusedError,
    Sequence,
    Target,
    memory_for,
)
from surefoot.drafting.minima import Minima
from surefoot.drafting.shadow import Shadow

FAILURES_ALLOWED = 2
"""A request for which drafting fails more often in a row gets no more drafts."""

_LOG = logging.getLogger(__name__)


class DraftRuntime(Target, Protocol):
    """A loaded draft model: a `Target` with as many slots as the real one, and as many spares."""

    @property
    def slots(self) -> int:
        """How many live sequences there is memory for; spare ids follow."""

    @property
    def context_length(self) -> int:
        """Tokens of context for each live sequence."""

    @property
    def batch_size(self) -> int:
        """Most tokens in one forward pass."""


class DraftModel:
    """Drafts with a model; the model is not closed by it.

    A text longer than a batch is absorbed in chunks, one a round, which share the pass in which
    others begin their drafts: nobody waits for a long prompt.

    Args:
        model: the draft model.
        n_max: most tokens in a draft.
        n_min: a shorter draft is not used.
        p_min: a draft ends before the first token that the draft model finds less probable; for
            rejection, where even its most probable one is.
        shared: token ids below this mean the same to both models; others are never drafted, and a
            text that has one gets no more drafts. None if all of the draft model's do.

    Attributes:
        failures: how often drafting failed, and the draft model had to begin again.
    """

    name = "draft-simple"

    def __init__(
        self,
        model: DraftRuntime,
        *,
        n_max: int = 3,
        n_min: int = 0,
        p_min: float = 0.0,
        shared: int | None = None,
    ) -> None:
        self._model = model
        self.longest_draft = n_max
        self._minima = Minima(n_min, p_min)
        self._shared = model.vocabulary_size if shared is None else shared
        self._shadows: dict[int, Shadow] = {}
        self._told_of_context = False
        self.failures = 0

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """A draft for each sequence that can have one; passes as many as the longest has tokens."""
        guesses = [self._begin(sequence, most) for sequence, most in wanted]
        live = [guess for guess in guesses if guess.most > 0]
        while live:
            live = self._step(live)
        return [self._finish(guess) for guess in guesses]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Nothing: the next proposal sees by the tokens what became of the draft."""

    def forget(self, sequence: Sequence) -> None:
        """Let go of the sequence. Its slot's memory stays for who comes with the same text."""
        shadow = self._shadows.get(sequence.memory.id)
        if shadow is not None and shadow.sequence is sequence:
            shadow.sequence = None

    # One proposal

    def _begin(self, sequence: Sequence, most: int) -> "_Guess":
        """See how much can be drafted for a sequence now, and go back to what it shares."""
        guess = _Guess(sequence, self._shadow(sequence.memory.id))
        try:
            guess.shadow.follow(sequence)
        except RollbackRefusedError as error:
            self._fail([guess], error)
            return guess
        if guess.shadow.silent or self._silenced(guess):
            return guess
        # The last token of a draft is never absorbed.
        room = self._model.context_length + 1 - len(sequence.committed)
        guess.most = min(most, self.longest_draft, room)
        if guess.most < self._minima.length(sequence):
            guess.most = 0
        return guess

    def _shadow(self, slot: int) -> Shadow:
        shadow = self._shadows.get(slot)
        if shadow is None:
            memory = memory_for(self._model, slot, spare_id=self._model.slots + slot)
            shadow = self._shadows[slot] = Shadow(memory)
        return shadow

    def _silenced(self, guess: "_Guess") -> bool:
        """Silence a sequence that the draft model can't follow any further."""
        length = self._model.context_length
        if len(guess.sequence.committed) > length:
            reason = f"the draft model's context of {length} tokens is full"
            self._silence(guess, reason)
            if not self._told_of_context:
                self._told_of_context = True
                _LOG.warning("%s: no more drafts, %s; -cd makes it longer", self.name, reason)
        elif (unknown := max(guess.owed)) >= self._shared:
            reason = f"the text has token {unknown}, which the draft model does not know"
            self._silence(guess, reason)
        return guess.shadow.silent

    def _silence(self, guess: "_Guess", reason: str) -> None:
        """Draft no more for a sequence, and note why."""
        guess.shadow.silent = True
        guess.sequence.counts.add_failure(self.name, reason)

    def _step(self, live: list["_Guess"]) -> list["_Guess"]:
        """One pass, one more token for each draft; returns those that go on."""
        live = [guess for guess in live if self._brace(guess)]
        fed = self._packed(live)
        if not fed:
            return []
        try:
            rows = self._model.decode([feed for _, feed in fed])
        except DecodeError as error:
            self._fail([guess for guess, _ in fed], error)
            return []
        for guess, feed in fed:
            guess.shadow.absorbed(list(feed.tokens))
        return [
            guess
            for (guess, _), logits in zip(fed, rows, strict=True)
            if len(logits) and self._extend(guess, logits[-1])
        ]

    def _brace(self, guess: "_Guess") -> bool:
        """Fork where all that is committed is absorbed, and nothing else; False if it fails."""
        memory = guess.shadow.memory
        if memory.length == len(guess.sequence.committed):
            try:
                memory.brace()
            except RollbackRefusedError as error:
                self._fail([guess], error)
                return False
        return True

    def _packed(self, live: list["_Guess"]) -> list[tuple["_Guess", Feed]]:
        """What goes into the next pass: those that owe little first, then a chunk of one more."""
        room = self._model.batch_size
        fed = []
        for guess in sorted(live, key=lambda guess: guess.debt):
            if room == 0:
                break
            memory, tokens = guess.shadow.memory, guess.owed[:room]
            outputs = 1 if len(tokens) == guess.debt else 0
            fed.append((guess, Feed(memory.id, tokens, memory.length, outputs)))
            room -= len(tokens)
        return fed

    def _extend(self, guess: "_Guess", logits: NDArray[np.float32]) -> bool:
        """Choose a draft's next token; False if there is none, or it is the last."""
        sequence, tokens = guess.sequence, guess.tokens
        position = sequence.position + len(tokens)
        try:
            chosen = self._minima.choice(sequence, logits, position, self._shared)
        except DecodeError as error:
            self._fail([guess], error)
            return False
        if chosen is None:
            return False
        token, source = chosen
        tokens.append(token)
        if source is not None:
            guess.distributions.append(source)
        ending = sequence.ending
        if token in ending.end_of_generation or token in ending.stop_tokens:
            return False
        undoable = guess.shadow.memory.longest_draft
        return len(tokens) < guess.most and len(tokens) <= undoable

    def _fail(self, guesses: Series["_Guess"], error: Exception) -> None:
        """Forget what the draft model knows of some sequences, and their drafts.

        Not what was drawn for rejection, which would change the law of the text if the failure
        hangs on what that is.
        """
        _LOG.warning("%s: %s; %d draft(s) are lost", self.name, error, len(guesses))
        self.failures += len(guesses)
        for guess in guesses:
            guess.failed = True
            if guess.sequence.rule != "rejection":
                guess.tokens.clear()
            shadow = guess.shadow
            shadow.clear()
            shadow.failures += 1
            if shadow.failures > FAILURES_ALLOWED:
                self._silence(guess, f"{error} ({shadow.failures} times in a row)")
            else:
                guess.sequence.counts.drafter_errors += 1

    def _finish(self, guess: "_Guess") -> Draft:
        if guess.tokens and not guess.failed:
            guess.shadow.failures = 0
        return self._minima.draft(guess.sequence, guess.tokens, self.name, guess.distributions)


@dataclass(slots=True)
class _Guess:
    """A draft in the making.

    Attributes:
        sequence: whose text goes on.
        shadow: what the draft model has absorbed of it.
        most: most tokens to draft; 0 for none.
        tokens: drafted so far.
        distributions: what they were drawn from, under rejection.
        failed: whether drafting failed, and nothing more can come.
    """

    sequence: Sequence
    shadow: Shadow
    most: int = 0
    tokens: list[int] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    failed: bool = False

    @property
    def debt(self) -> int:
        """How many tokens the draft model has to absorb before it can say the next one."""
        return len(self.sequence.committed) + len(self.tokens) - self.shadow.memory.length

    @property
    def owed(self) -> list[int]:
        """Those tokens: committed ones, and the draft's last."""
        committed, length = self.sequence.committed, self.shadow.memory.length
        return committed[length:] + self.tokens[max(0, length - len(committed)) :]
