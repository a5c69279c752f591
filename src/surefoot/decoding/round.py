"""One round: draft, fork, one forward pass, verify, commit, settle.

This is the heart of surefoot. There is no replay and no second verification: tokens that were
accepted but that the memory had to give up are pending, and ride along in the next pass without
outputs. Whatever the logits are, every round commits at least one token for every sequence in it.
"""

from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.draft import NO_DRAFT, Draft, Drafter
from surefoot.decoding.errors import RollbackRefusedError
from surefoot.decoding.sequence import Sequence
from surefoot.decoding.target import Feed, Target
from surefoot.decoding.verification import Verdict, Verifier, by_equality

MAX_PENDING = 16
"""Above so many pending tokens a round drafts nothing: the memory catches up, and a rejection
does not make the next pass wider still."""


class Outcome(NamedTuple):
    """What a round did for one sequence.

    Attributes:
        sequence: the sequence.
        tokens: the tokens committed, at least one.
        drafted: how many draft tokens were verified.
        accepted: how many of the committed tokens, from the first on, were draft tokens.
    """

    sequence: Sequence
    tokens: list[int]
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Round:
    """Plays rounds for the sequences of one target.

    Attributes:
        target: the model.
        drafter: proposes drafts; None for plain decoding.
        verify: judges them.
    """

    target: Target
    drafter: Drafter | None = None
    verify: Verifier = by_equality

    def play(self, sequences: Series[Sequence]) -> list[Outcome]:
        """Play one round: one forward pass, at least one token for every sequence.

        Args:
            sequences: unfinished ones whose prompts are absorbed but for what is pending.

        Raises:
            DecodeError: the pass failed. Nothing was committed by it.
            RollbackRefusedError: a memory did not go back. If that was in settling, all that the
                pass decided is committed, and memories that are not `settled` are unknown; if it
                was before, nothing is committed.
        """
        drafts = self._draft(sequences)
        self._fork(sequences, drafts)
        rows = self._decode(sequences, drafts)
        verdicts = self._verify(sequences, drafts, rows)
        outcomes = [
            self._commit(sequence, draft, verdict)
            for sequence, draft, verdict in zip(sequences, drafts, verdicts, strict=True)
        ]
        self._settle(sequences)
        return outcomes

    def _draft(self, sequences: Series[Sequence]) -> list[Draft]:
        """Ask for drafts where one can pay; the target's own token always needs room, too."""
        drafts = [NO_DRAFT] * len(sequences)
        if self.drafter is None:
            return drafts
        depths = [self._depth(sequence) for sequence in sequences]
        wanted = [(s, depth) for s, depth in zip(sequences, depths, strict=True) if depth > 0]
        proposed = iter(self.drafter.propose(wanted) if wanted else ())
        return [self._usable(next(proposed), depth) if depth > 0 else NO_DRAFT for depth in depths]

    def _depth(self, sequence: Sequence) -> int:
        if len(sequence.pending) > MAX_PENDING:
            return 0
        return min(sequence.max_draft, sequence.memory.longest_draft, sequence.room - 1)

    def _usable(self, draft: Draft, depth: int) -> Draft:
        """The head of a draft that is no longer than asked for and holds only known tokens."""
        size = self.target.vocabulary_size
        tokens = draft.tokens[:depth]
        unknown = (i for i, token in enumerate(tokens) if not 0 <= token < size)
        length = next(unknown, len(tokens))
        return draft._replace(tokens=tokens[:length])

    def _fork(self, sequences: Series[Sequence], drafts: Series[Draft]) -> None:
        for sequence, draft in zip(sequences, drafts, strict=True):
            if draft.tokens:
                sequence.memory.brace()

    def _decode(
        self, sequences: Series[Sequence], drafts: Series[Draft]
    ) -> list[NDArray[np.float32]]:
        """The one forward pass; outputs only from the last pending token on."""
        feeds = [
            Feed(
                sequence=sequence.memory.id,
                tokens=[*sequence.pending, *draft.tokens],
                start=sequence.state_len,
                outputs=1 + len(draft.tokens),
            )
            for sequence, draft in zip(sequences, drafts, strict=True)
        ]
        logits = self.target.decode(feeds)
        for sequence, feed in zip(sequences, feeds, strict=True):
            sequence.memory.absorbed(len(feed.tokens))
        return logits

    def _verify(
        self, sequences: Series[Sequence], drafts: Series[Draft], rows: Series[NDArray[np.float32]]
    ) -> list[Verdict]:
        noise = self.target.logit_noise
        return [
            self.verify(sequence, draft, logits, noise)
            for sequence, draft, logits in zip(sequences, drafts, rows, strict=True)
        ]

    def _commit(self, sequence: Sequence, draft: Draft, verdict: Verdict) -> Outcome:
        """Decide the tokens one by one; what lies behind the end of the request never is."""
        before = len(sequence.committed)
        for choice in verdict.choices:
            sequence.commit(choice)
            if sequence.finish:
                break
        tokens = sequence.committed[before:]
        accepted = min(len(tokens), verdict.accepted)
        ahead = sequence.state_len >= len(sequence.committed)
        sequence.counts.add_round(
            len(draft.tokens), accepted, rolled_back=ahead, drafter=draft.drafter
        )
        if self.drafter is not None and draft.tokens:
            self.drafter.learn(sequence, draft, accepted)
        return Outcome(sequence, tokens, len(draft.tokens), accepted)

    def _settle(self, sequences: Series[Sequence]) -> None:
        """Take each memory back over what was not committed; the rest becomes pending."""
        refusals = []
        for sequence in sequences:
            try:
                sequence.memory.settle(len(sequence.committed) - 1)
            except RollbackRefusedError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
