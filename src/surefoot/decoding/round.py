"""One round: draft, fork, one forward pass, then verify and commit token by token, and settle.

This is the heart of surefoot. There is no replay and no second verification: tokens that were
accepted but that the memory had to give up are pending, and ride along in the next pass without
outputs. Whatever the logits are, every round commits at least one token for every sequence in it.

A token is committed as soon as it is decided, before the next one is looked at, just as if the
model had been asked one token at a time. So whatever moves on with the text (penalties, grammars,
budgets) moves once for each token, and there is nothing to be rolled back.
"""

import logging
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.alignment import TRIED_EVERY, GraphRuns, Part, aligned, chances
from surefoot.decoding.control import ControlError
from surefoot.decoding.draft import NO_DRAFT, Draft, Drafter
from surefoot.decoding.errors import DecodeError, NoTokenError, RollbackRefusedError
from surefoot.decoding.observing import Observe, Played
from surefoot.decoding.rejection import rejection
from surefoot.decoding.sequence import RuleName, Sequence
from surefoot.decoding.target import Feed, Target
from surefoot.decoding.verification import Judgement, Rule, coupled

log = logging.getLogger(__name__)

MAX_PENDING = 16
"""Above so many pending tokens a round drafts nothing: the memory catches up, and a rejection
does not make the next pass wider still."""

FORCED = "forced"
"""Names the drafts that consist of tokens that come anyway, and whose scores are wanted."""

FILLER = 0
"""The token that pads a pass to a width of its class. Its logits are never looked at."""

RULES: dict[RuleName, Rule] = {"coupled": coupled, "rejection": rejection}
"""The verification rules that a sequence can ask for."""


class Outcome(NamedTuple):
    """What a round did for one sequence.

    Attributes:
        sequence: the sequence.
        tokens: the tokens committed; none only if choosing has failed.
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
        rule: verifies them in the place of each sequence's own rule; None for that.
        runs: how many graph runs a pass takes, so that widths can be aligned; None if that must not
            or need not be.
    """

    target: Target
    drafter: Drafter | None = None
    rule: Rule | None = None
    runs: GraphRuns | None = None

    def play(self, sequences: Series[Sequence], observe: Observe | None = None) -> list[Outcome]:
        """Play one round: one forward pass, at least one token for every sequence.

        Args:
            sequences: unfinished ones whose prompts are absorbed but for what is pending.
            observe: told what was decided for each sequence, before the memories settle.

        Raises:
            DecodeError: the pass failed, or a row of its logits is none. What is committed stands.
            RollbackRefusedError: a memory did not go back. If that was in settling, all that the
                pass decided is committed, and memories that are not `settled` are unknown; if it
                was before, nothing is committed.
        """
        drafts = self._aligned(sequences, self._draft(sequences))
        fillers = [
            self._padding(sequence, len(draft.tokens))
            for sequence, draft in zip(sequences, drafts, strict=True)
        ]
        self._fork(sequences, drafts, fillers)
        owed = [len(sequence.committed) - sequence.state_len for sequence in sequences]
        rows = self._decode(sequences, drafts, fillers)
        outcomes, played, failures = [], [], []
        for sequence, draft, pending, padding, logits in zip(
            sequences, drafts, owed, fillers, rows, strict=True
        ):
            try:
                outcome = self._decide(sequence, draft, len(draft.tokens) + padding, logits)
            except DecodeError as error:
                failures.append(error)
                continue
            outcomes.append(outcome)
            if observe is not None:
                _, tokens, _, accepted = outcome
                played.append(Played(sequence, draft, accepted, tokens, pending, padding, logits))
        if observe is not None:
            observe(played)
        if failures:
            raise failures[0]
        self._settle(sequences)
        return outcomes

    # Drafting

    def _draft(self, sequences: Series[Sequence]) -> list[Draft]:
        """Ask for drafts where one can pay; the target's own token always needs room, too."""
        depths = [self._depth(sequence) for sequence in sequences]
        drafts = [_forced(sequence) for sequence in sequences]
        if self.drafter is not None:
            wanted = [
                (sequence, depth)
                for sequence, depth, draft in zip(sequences, depths, drafts, strict=True)
                if depth > 0 and not draft.tokens
            ]
            proposed = dict(
                zip(wanted, self.drafter.propose(wanted) if wanted else (), strict=True)
            )
            drafts = [
                proposed.get(key, draft)
                for key, draft in zip(zip(sequences, depths, strict=True), drafts, strict=True)
            ]
        return [
            self._usable(sequence, draft, depth)
            for sequence, draft, depth in zip(sequences, drafts, depths, strict=True)
        ]

    def _depth(self, sequence: Sequence) -> int:
        """Most draft tokens for a sequence now; those that are forced need no wish for drafts."""
        if len(sequence.pending) > MAX_PENDING:
            return 0
        depth = min(sequence.memory.longest_draft, sequence.room - 1)
        if self.target.widths is not None:
            depth = min(depth, self.target.widths.most - len(sequence.pending))
        if sequence.wish is None or not sequence.forced:
            depth = min(depth, sequence.max_draft)
        return max(0, depth)

    def _usable(self, sequence: Sequence, draft: Draft, depth: int) -> Draft:
        """The head of a draft that has room, is known, is permitted, and can be padded.

        For rejection it ends behind the first unknown token, and whatever is permitted.
        """
        if not draft.tokens:
            return draft
        size = self.target.vocabulary_size
        tokens = draft.tokens[:depth]
        unknown = next((i for i, token in enumerate(tokens) if not 0 <= token < size), len(tokens))
        # Rejection has to see what was drawn: leaving out the tokens that it would reject anyway
        # would change the law of those that are drawn in their place.
        if self.rule is None and sequence.rule == "rejection":
            tokens = tokens[: unknown + 1]
        else:
            tokens = tokens[:unknown]
            if sequence.control is not None:
                tokens = tokens[: sequence.control.permitted(tokens)]
        if self.target.widths is not None:
            undoable = sequence.memory.longest_draft
            while tokens and len(tokens) + self._padding(sequence, len(tokens)) > undoable:
                tokens = tokens[:-1]
        return draft.head(len(tokens))

    def _aligned(self, sequences: Series[Sequence], drafts: list[Draft]) -> list[Draft]:
        """The drafts, some of them cut short where that saves graph runs; see `alignment`.

        Rejection has to see all that was drawn, so its drafts stay.
        """
        if self.runs is None or len(sequences) == 1:
            return drafts
        parts = [
            Part(
                sequence.memory.id,
                len(sequence.committed) - sequence.state_len,
                chances(sequence.counts, len(draft.tokens)),
                fixed=(self.rule is None and sequence.rule == "rejection")
                or sequence.counts.rounds % TRIED_EVERY == 0,
            )
            for sequence, draft in zip(sequences, drafts, strict=True)
        ]
        kept = aligned(parts, self.runs)
        return [draft.head(length) for draft, length in zip(drafts, kept, strict=True)]

    def _padding(self, sequence: Sequence, drafted: int) -> int:
        """How many tokens a pass lacks to a width of its class."""
        widths = self.target.widths
        if widths is None:
            return 0
        needed = len(sequence.pending) + drafted
        return (widths.up(needed) or needed) - needed

    # The pass

    def _fork(
        self, sequences: Series[Sequence], drafts: Series[Draft], fillers: Series[int]
    ) -> None:
        for sequence, draft, padding in zip(sequences, drafts, fillers, strict=True):
            if draft.tokens or padding:
                sequence.memory.brace()

    def _decode(
        self, sequences: Series[Sequence], drafts: Series[Draft], fillers: Series[int]
    ) -> list[NDArray[np.float32]]:
        """The one forward pass; outputs only from the last pending token on.

        In a width class outputs are asked for of all tokens, since the last layers work on no
        other rows: how many outputs there are is a width, too.

        Returns:
            For each sequence a row behind its last pending token, and one behind each draft token.
        """
        whole = self.target.widths is not None
        feeds = []
        for sequence, draft, padding in zip(sequences, drafts, fillers, strict=True):
            tokens = [*sequence.pending, *map(self._fed, draft.tokens), *[FILLER] * padding]
            outputs = len(tokens) if whole else 1 + len(draft.tokens)
            tentative = len(draft.tokens) + padding
            feeds.append(Feed(sequence.memory.id, tokens, sequence.state_len, outputs, tentative))
        logits = self.target.decode(feeds)
        rows = []
        for sequence, feed, given in zip(sequences, feeds, logits, strict=True):
            first = feed.outputs - feed.tentative - 1
            rows.append(given[first:])
            sequence.memory.absorbed(len(feed.tokens))
        return rows

    def _fed(self, token: int) -> int:
        """A draft token as the model takes it; one that it does not know is never accepted."""
        return token if 0 <= token < self.target.vocabulary_size else FILLER

    # What comes of it

    def _decide(
        self, sequence: Sequence, draft: Draft, tentative: int, rows: NDArray[np.float32]
    ) -> Outcome:
        """Decide tokens from the left, and commit each before the next is looked at.

        Args:
            sequence: the sequence.
            draft: its draft.
            tentative: tokens of the pass that were not committed, fillers included.
            rows: logits behind the last pending token and behind each draft token.
        """
        before = len(sequence.committed)
        accepted = 0
        try:
            for offset in range(len(draft.tokens) + 1):
                choice, agreed = self._judgement(sequence, draft, offset, rows[offset])
                sequence.commit(choice)
                accepted += agreed
                if sequence.finish or not agreed:
                    break
            sequence.fast_forward()
        except (ControlError, NoTokenError) as error:
            sequence.fail(str(error), own=True)
        except DecodeError:
            raise
        except Exception as error:
            # Whatever goes wrong in choosing is this request's own; others are in the pass, too.
            log.exception("choosing a token failed; the request ends")
            sequence.fail(f"internal error in choosing a token: {error!r}")
        finally:
            # Forced tokens may have been committed where the memory holds draft tokens.
            held = sequence.state_len - tentative + accepted
            sequence.sound = min(held, len(sequence.committed) - 1)
        tokens = sequence.committed[before:]
        ahead = sequence.state_len > sequence.sound
        sequence.counts.add_round(
            len(draft.tokens), accepted, rolled_back=ahead, drafter=draft.drafter
        )
        if self.drafter is not None and draft.tokens and draft.drafter != FORCED:
            self.drafter.learn(sequence, draft, accepted)
        return Outcome(sequence, tokens, len(draft.tokens), accepted)

    def _judgement(
        self, sequence: Sequence, draft: Draft, offset: int, logits: NDArray[np.float32]
    ) -> Judgement:
        forced = sequence.forced_choice(logits)
        if forced is not None:
            agreed = offset < len(draft.tokens) and draft.tokens[offset] == forced.token
            return Judgement(forced, agreed)
        rule = self.rule or RULES[sequence.rule]
        return rule(sequence, draft, offset, logits, self.target.logit_noise)

    def _settle(self, sequences: Series[Sequence]) -> None:
        """Take each memory back over what was not committed; the rest becomes pending."""
        refusals = []
        for sequence in sequences:
            try:
                sequence.memory.settle(sequence.sound)
            except RollbackRefusedError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]


def _forced(sequence: Sequence) -> Draft:
    """The tokens that come next anyway as a draft, where the model has to score them."""
    tokens = () if sequence.wish is None else tuple(sequence.forced)
    return Draft(tokens, FORCED) if tokens else NO_DRAFT
