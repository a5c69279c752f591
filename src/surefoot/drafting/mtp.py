"""`draft-mtp`: the model's own multi-token-prediction head guesses how the text goes on.

A head goes on from the target's hidden rows, so it is told of every pass of the target. A prompt's
rows are fed to it as they come, in the target's own chunks. In rounds rows are only kept: which
tokens stay is known later, and then those are fed in the pass that gives the next draft's first
token. So a draft costs one pass for each of its tokens and no more. (llama-server, build 11434,
feeds its head every batch of the target's, rejected drafts included: one more pass a round.) All
sequences that draft share the passes.

A single head is fed its own row in place of the target's for further tokens. Of several trained
heads each makes one token: the i-th is fed the text, and the tokens and rows of those before it.

At temperature 0 it proposes the head's most likely token. Above, it chooses from the head's
distribution by the target's rule, with the sequence's own sampling parameters and noise at the
token's position, so that both choose alike as often as they can. For a sequence that verifies by
rejection it draws with noise of its own, and hands over from what.
"""

import logging
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Series
from dataclasses import dataclass, field, replace

import numpy as np

from surefoot.decoding import (
    DecodeError,
    Distribution,
    Draft,
    Feed,
    Head,
    HeadFeed,
    HeadOutput,
    KeepingHead,
    Rows,
    Sequence,
    SurefootError,
)
from surefoot.drafting.minima import Minima
from surefoot.drafting.trail import Row, Trail
from surefoot.drafting.trail_bytes import pack_trail, unpack_trail

MOST_ROWS = 64
"""So many rows of a sequence are kept at most; if it does not draft, they are fed in between."""

FAILURES_ALLOWED = 2
"""A request for which drafting fails more often in a row gets no more drafts."""

_LOG = logging.getLogger(__name__)


class MtpDrafter:
    """Drafts with the heads of a model; they are not closed by it.

    Args:
        head: the heads.
        n_max: most tokens in a draft; of several heads each drafts one at most.
        n_min: a shorter draft is not used.
        p_min: a draft ends before the first token that the head finds less probable; for
            rejection, where even its most probable one is.
        shared: token ids below this mean the same to the head and the target; others are never
            drafted. None if all of the head's do.

    Attributes:
        draft_passes: the head's passes that gave draft tokens.
        catch_up_passes: its passes that only absorbed text, for the most part prompts.
        missing: drafts that could not be made because the row to begin with was not known.
        failures: passes that failed, times sequences in them.
    """

    name = "draft-mtp"

    def __init__(
        self,
        head: Head,
        *,
        n_max: int = 3,
        n_min: int = 0,
        p_min: float = 0.0,
        shared: int | None = None,
    ) -> None:
        self._head = head
        self.longest_draft = min(n_max, head.heads) if head.heads > 1 else n_max
        self._minima = Minima(n_min, p_min)
        self._shared = head.vocabulary_size if shared is None else shared
        self._trails: dict[int, Trail] = {}
        self.draft_passes = 0
        self.catch_up_passes = 0
        self.missing = 0
        self.failures = 0
        head.watch(self.observe)

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """A draft for each sequence that can have one; passes as many as the longest has tokens."""
        guesses = [self._begin(sequence, most) for sequence, most in wanted]
        drafted = 0
        while live := [guess for guess in guesses if guess.goes_on]:
            head = drafted if self._head.heads > 1 else 0
            parts = [self._next_part(guess, head) for guess in live]
            self.draft_passes += self._run(parts, head, self._extend)
            drafted += 1
        return [self._finish(guess) for guess in guesses]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Nothing: the next proposal sees by the tokens what became of the draft."""

    def forget(self, sequence: Sequence) -> None:
        """Let go of the sequence. Its slot's entries stay for who comes with the same text."""
        trail = self._trails.get(sequence.memory.id)
        if trail is not None and trail.sequence is sequence:
            trail.leave()

    def close(self) -> None:
        """Watch the target no longer."""
        self._head.unwatch(self.observe)

    def observe(self, feeds: Series[Feed], rows: Series[Rows]) -> None:
        """Hear of a pass of the target; see `RowWatcher`."""
        seen, due = [], []
        for feed, given in zip(feeds, rows, strict=True):
            trail = self._trail(feed.sequence)
            trail.see(feed, given)
            seen.append(trail)
            certain = feed.start + len(feed.tokens) - feed.tentative
            if feed.outputs == 0 or trail.backlog(certain) > MOST_ROWS:
                due.append((trail, certain))
        if due:
            self._catch_up(due)
        for trail in seen:
            trail.keep()

    # States

    def keep(self, source: int, copy: int, length: int) -> None:
        """Let a sequence know what is known of another one; see `KeepsStates`."""
        trail = self._trails[copy] = self._trail(source).copy_to(copy, length)
        for head in range(self._head.heads):
            try:
                if not isinstance(self._head, KeepingHead):
                    raise DecodeError("the head can't share its entries")
                self._head.fork(source, copy, trail.held[head], head)
            except SurefootError as error:
                self._begin_anew(trail, head, error)

    def save(self, sequence: int) -> bytes:
        """All that is known of a sequence; see `KeepsStates`."""
        trail = self._trail(sequence)
        if not isinstance(self._head, KeepingHead):
            return b""
        try:
            entries = [self._head.save(sequence, head) for head in range(self._head.heads)]
        except SurefootError as error:
            _LOG.info("%s: %s; its state is not saved", self.name, error)
            return b""
        return pack_trail(trail, entries)

    def load(self, sequence: int, tokens: Series[int], state: bytes) -> None:
        """Know what was saved; see `KeepsStates`."""
        trail = self._trails[sequence] = Trail(sequence, self._head.heads)
        if not state or not isinstance(self._head, KeepingHead):
            for head in range(self._head.heads):
                self._begin_anew(trail, head, None)
            return
        try:
            for head, entries in enumerate(unpack_trail(trail, tokens, state)):
                self._head.load(sequence, entries, head)
                # What was drafted before the state was saved is in it, too.
                self._head.cut(sequence, trail.held[head], head)
        except (SurefootError, ValueError) as error:
            for head in range(self._head.heads):
                self._begin_anew(trail, head, error)

    def _begin_anew(self, trail: Trail, head: int, error: Exception | None) -> None:
        """Forget what a head holds of a sequence, because of an error if there is one."""
        if error is not None:
            _LOG.info("%s: %s; it begins anew", self.name, error)
        trail.lose(head)
        try:
            self._head.cut(trail.slot, 0, head)
        except SurefootError as refusal:
            _LOG.debug("%s: %s", self.name, refusal)

    # Absorbing

    def _trail(self, slot: int) -> Trail:
        trail = self._trails.get(slot)
        if trail is None:
            trail = self._trails[slot] = Trail(slot, self._head.heads)
        return trail

    def _catch_up(self, due: Series[tuple[Trail, int]]) -> None:
        """Let every head absorb what it lacks of some texts, up to a position in each."""
        for head in range(self._head.heads):
            parts = [_Part(trail, trail.owed(head, end)) for trail, end in due]
            self.catch_up_passes += self._run([p for p in parts if p.positions], head)

    def _run(
        self,
        parts: Series["_Part"],
        head: int,
        use: Callable[["_Guess", HeadOutput], None] | None = None,
    ) -> int:
        """Run parts through a head, all in one pass if they are not too long for that.

        Returns:
            How many passes it took.
        """
        passes = 0
        for packed in self._packed(parts):
            try:
                feeds = [self._feed(part, head) for part in packed]
                outputs = self._head.decode(feeds, head)
                passes += 1
                for part, feed, output in zip(packed, feeds, outputs, strict=True):
                    part.trail.absorbed(head, part.positions)
                    part.trail.held[head] = feed.start + len(feed.tokens)
                    if use is not None and part.guess is not None and output is not None:
                        use(part.guess, output)
            except SurefootError as error:
                self._fail(packed, head, error)
        return passes

    def _packed(self, parts: Series["_Part"]) -> Iterator[list["_Part"]]:
        """Share parts out to passes; a part that is too long for one is cut into pieces."""
        room, packed = self._head.batch_size, list[_Part]()
        for part in parts:
            for piece in part.pieces(self._head.batch_size):
                if piece.width > room:
                    yield packed
                    room, packed = self._head.batch_size, []
                packed.append(piece)
                room -= piece.width
        if packed:
            yield packed

    def _feed(self, part: "_Part", head: int) -> HeadFeed:
        """A part as the head takes it, behind the entries that it should hold."""
        trail = part.trail
        start = len(trail.entries[head])
        if part.goes_on_drafting:
            start = trail.held[head]
        elif trail.held[head] > start:
            self._head.cut(trail.slot, start, head)
        tokens = [*trail.tokens_at(part.positions), *part.tokens]
        rows = [*trail.rows_before(part.positions), *part.rows]
        return HeadFeed(trail.slot, tokens, np.stack(rows), start, part.guess is not None)

    def _fail(self, parts: Series["_Part"], head: int, error: Exception) -> None:
        """Forget what a head knows of some sequences, and their drafts.

        Not what was drawn for rejection, which would change the law of the text if the failure
        hangs on what that is.
        """
        for part in parts:
            self.failures += 1
            part.trail.lose(head)
            part.trail.failures += 1
            if part.guess is not None:
                part.guess.failed = True
                if part.guess.sequence.rule != "rejection":
                    part.guess.tokens.clear()
                part.guess.most = len(part.guess.tokens)
            try:
                self._head.cut(part.trail.slot, 0, head)
            except SurefootError as refusal:
                error = refusal
        _LOG.warning("%s: %s; no draft for %d request(s)", self.name, error, len(parts))

    # One proposal

    def _begin(self, sequence: Sequence, most: int) -> "_Guess":
        """See how much can be drafted for a sequence now."""
        trail = self._trail(sequence.memory.id)
        trail.follow(sequence)
        guess = _Guess(sequence, trail)
        if trail.failures > FAILURES_ALLOWED:
            return guess
        end = len(sequence.committed)
        if not trail.ready(end):
            self.missing += 1
            return guess
        # A head has fewer entries than the text has tokens, and never gets a draft's last one.
        guess.most = min(most, self.longest_draft, self._head.room - end + 2)
        if guess.most < self._minima.length(sequence):
            guess.most = 0
        return guess

    def _next_part(self, guess: "_Guess", head: int) -> "_Part":
        """What a head must be fed for the next token of a draft."""
        if guess.tokens and self._head.heads == 1:
            return _Part(guess.trail, (), guess.tokens[-1:], guess.rows[-1:], guess)
        positions = guess.trail.owed(head, len(guess.sequence.committed))
        return _Part(guess.trail, positions, guess.tokens, guess.rows, guess)

    def _extend(self, guess: "_Guess", output: HeadOutput) -> None:
        """Choose a draft's next token; without one, or with one that ends it, it is complete."""
        sequence, tokens = guess.sequence, guess.tokens
        position = sequence.position + len(tokens)
        chosen = self._minima.choice(sequence, output.logits, position, self._shared)
        if chosen is None:
            guess.most = len(tokens)
            return
        token, source = chosen
        tokens.append(token)
        if source is not None:
            guess.distributions.append(source)
        guess.rows.append(output.row.copy())
        ending = sequence.ending
        if token in ending.end_of_generation or token in ending.stop_tokens:
            guess.most = len(tokens)

    def _finish(self, guess: "_Guess") -> Draft:
        if guess.tokens and not guess.failed:
            guess.trail.failures = 0
        return self._minima.draft(guess.sequence, guess.tokens, self.name, guess.distributions)


@dataclass(slots=True)
class _Guess:
    """A draft in the making.

    Attributes:
        sequence: whose text goes on.
        trail: the slot's.
        most: most tokens to draft; 0 for none.
        tokens: drafted so far.
        distributions: what they were drawn from, under rejection.
        rows: the head's own row at the token before each of them.
        failed: whether a pass failed, and nothing more can come.
    """

    sequence: Sequence
    trail: Trail
    most: int = 0
    tokens: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    failed: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether another token is wanted."""
        return len(self.tokens) < self.most


@dataclass(frozen=True, slots=True)
class _Part:
    """What a head is to be fed of one sequence.

    Attributes:
        trail: the slot's.
        positions: of entries in the text.
        tokens: draft tokens behind them.
        rows: the head's own row before each of those.
        guess: the draft that is to be extended by what comes out; None if nothing shall.
    """

    trail: Trail
    positions: Series[int]
    tokens: Series[int] = ()
    rows: Series[Row] = ()
    guess: _Guess | None = None

    @property
    def width(self) -> int:
        """How many tokens that is."""
        return len(self.positions) + len(self.tokens)

    @property
    def goes_on_drafting(self) -> bool:
        """Whether it follows a draft that the head holds."""
        return not self.positions

    def pieces(self, most: int) -> list["_Part"]:
        """The part cut into pieces of `most` tokens at most; only the last one wants an output."""
        ahead = max(0, self.width - most)
        pieces = [
            _Part(self.trail, self.positions[at : min(at + most, ahead)])
            for at in range(0, ahead, most)
        ]
        return [*pieces, replace(self, positions=self.positions[ahead:])]
