"""A generation: a request on its way through the engine, with the sequence that decodes it."""

from collections.abc import Callable
from collections.abc import Sequence as Series

from surefoot.decoding import Sequence
from surefoot.engine.journal import Delta, Entry, GenerationState, Journal, Progress
from surefoot.engine.request import Request
from surefoot.runtime.base import Tokenizer

__all__ = ["Delta", "Entry", "Generation", "GenerationState"]


class Generation(Journal):
    """A journal and the engine's side of it, which the engine alone writes.

    Attributes:
        sequence: what decodes it; None while it waits for a slot.
        outlet: takes what is told in the place of this journal, if another process keeps it.
        begun: called when a slot has been found.
    """

    def __init__(
        self,
        request: Request,
        listener: Callable[[Delta], None],
        tokenizer: Tokenizer,
        submitted: float = 0.0,
    ) -> None:
        super().__init__(request, listener, tokenizer, submitted)
        self.group: Series[Generation] = [self]
        self.sequence: Sequence | None = None
        self.outlet: Callable[[Progress], None] | None = None
        self.begun: Callable[[], None] = lambda: None
        self._told = 0 if request.resumed is None else len(request.resumed.tokens)
        self._ties_told = 0 if request.resumed is None else len(request.resumed.near_ties)
        self._prompt_told = not request.score_prompt

    def begin(self, sequence: Sequence) -> None:
        """Take the sequence that decodes it."""
        self.sequence = sequence
        self.begun()

    def tell(self, accepted: int = 0) -> None:
        """Tell what is new.

        Args:
            accepted: how many of the new tokens, from the first on, were accepted draft tokens.
        """
        progress = self._progress(accepted)
        (self.outlet or self.hear)(progress)

    def _progress(self, accepted: int) -> Progress:
        sequence, over = self.sequence, self.state.over
        summary = self.summary if over else None
        if sequence is None:
            return Progress(
                [],
                0,
                self.state,
                [],
                [],
                summary=summary,
                finish=self.finish,
                error=self.error,
                retry_after=self.retry_after,
            )
        told = self._told - len(sequence.shed)
        tokens = sequence.committed[sequence.prompt_length + told :]
        self._told += len(tokens)
        ties = sequence.counts.near_tie_positions[self._ties_told :]
        self._ties_told += len(ties)
        prompt_scores = None
        if not self._prompt_told:
            self._prompt_told, prompt_scores = True, sequence.prompt_scores
        return Progress(
            tokens=tokens,
            accepted=accepted,
            state=self.state,
            scores=sequence.scores[len(sequence.scores) - len(tokens) :] if sequence.wish else [],
            near_ties=ties,
            mu=sequence.chooser.mu,
            prompt_scores=prompt_scores,
            summary=summary,
            finish=self.finish,
            error=self.error,
            own_fault=self.own_fault,
        )
