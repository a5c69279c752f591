"""A sequence: the journal of what is decided, and the memory that may lag behind it.

`committed` is append-only; nothing ever decides its tokens again. (Where a full context is shifted,
the tokens that the model no longer sees are taken out of it.) `pending` is what the model's
memory still owes. Both numbers together are all there is to know about a request in progress.
"""

from collections.abc import Container
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Literal

from surefoot.decoding.control import Control
from surefoot.decoding.counts import Counts
from surefoot.decoding.ending import Ending, Finish
from surefoot.decoding.memory import Memory
from surefoot.decoding.sampling import (
    NO_BREAKERS,
    Breakers,
    Choice,
    Chooser,
    Distribution,
    Logits,
    Sampling,
)
from surefoot.decoding.scores import Scores, ScoreWish, raw_scores


@dataclass(frozen=True, slots=True)
class DraftWishes:
    """What a request wants of its drafts, beyond their length; None leaves it to the drafters.

    Attributes:
        types: names of the drafters that may draft for it.
        n_min: a draft shorter than that is not used, from drafters that run a model.
        p_min: such a drafter ends a draft before the first token that it finds less probable.
    """

    types: frozenset[str] | None = None
    n_min: int | None = None
    p_min: float | None = None


RuleName = Literal["coupled", "rejection"]
"""How drafts are verified; see `verification`."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One request's tokens.

    Attributes:
        committed: the tokens decided so far, prompt first; at least one.
        memory: what the model has absorbed of them.
        sampling: how the target chooses.
        ending: when the request is over.
        max_draft: most draft tokens in a round; 0 for no speculation.
        wishes: what else is wanted of the drafts.
        prompt_length: how many of the committed tokens are prompt.
        finish: why the request ended; None while it goes on.
        counts: what its rounds did.
        control: what decides about the text beside the model; None if nothing does.
        rule: how its drafts are verified.
        wish: what to tell of each token's log-probabilities; None for nothing.
        score_prompt: whether to tell those of the prompt's tokens, too.
        scores: of each generated token, if they are wanted.
        prompt_scores: of each prompt token but the first, if they are wanted.
        fault: why the sequence can't go on, in words; None if it can.
        own_fault: whether that lies in what the request asks for.
        sound: so many tokens that the last pass left in the memory are the committed ones. Behind
            them lie draft tokens, even where as many tokens have been committed since.
        breakers: what DRY's repeats do not reach across.
        shed: generated tokens that were taken out of `committed` when the context was shifted.
        gone: how many tokens were taken out in all, those of the prompt included.
        intact: so many tokens at the beginning are what they are in a straight decode; behind them
            tokens have been taken out.
        chooser: applies the sampling parameters.
    """

    committed: list[int]
    memory: Memory
    sampling: Sampling = field(default_factory=Sampling)
    ending: Ending = field(default_factory=Ending)
    max_draft: int = 16
    wishes: DraftWishes = field(default_factory=DraftWishes)
    prompt_length: int = 0
    finish: Finish | None = None
    counts: Counts = field(default_factory=Counts)
    control: Control | None = None
    rule: RuleName = "coupled"
    wish: ScoreWish | None = None
    score_prompt: bool = False
    scores: list[Scores] = field(default_factory=list)
    prompt_scores: list[Scores] = field(default_factory=list)
    fault: str | None = None
    own_fault: bool = False
    sound: int = 1 << 62
    breakers: Breakers = NO_BREAKERS
    shed: list[int] = field(default_factory=list)
    gone: int = 0
    intact: int = 1 << 62
    chooser: Chooser = field(init=False)

    def __post_init__(self) -> None:
        """Take what is committed so far as the prompt, unless told otherwise."""
        if not self.committed:
            raise ValueError("a sequence needs at least one token to go on from")
        self.prompt_length = self.prompt_length or len(self.committed)
        self.chooser = Chooser(
            self.sampling, self.committed, self.ending.end_of_generation, self.breakers
        )

    @property
    def state_len(self) -> int:
        """How many committed tokens the model's memory has absorbed."""
        return self.memory.length

    @property
    def pending(self) -> list[int]:
        """The committed tokens that the memory still owes; at least the last one."""
        return self.committed[self.memory.length :]

    @property
    def settled(self) -> bool:
        """Whether the memory holds committed tokens only, as it should between rounds."""
        return self.memory.length <= self.sound and self.memory.length < len(self.committed)

    @property
    def generated(self) -> int:
        """How many tokens have been generated."""
        return len(self.shed) + len(self.committed) - self.prompt_length

    @property
    def position(self) -> int:
        """The place of the next token in the whole text, which the noise goes by."""
        return self.gone + len(self.committed)

    @property
    def room(self) -> int:
        """How many more tokens the limits allow, at least 1 while the request goes on."""
        return self.ending.room(self.generated, len(self.committed))

    def choose(self, logits: Logits, tolerance: float) -> Choice:
        """The target's choice of the next token, among those that the control allows.

        Args:
            logits: shape (vocabulary,), after all that is committed.
            tolerance: the near-tie rule's tolerance.

        Raises:
            DecodeError: the logits are not numbers.
            ControlError: the control leaves no token.
        """
        allowed = None if self.control is None else self.control.allowed()
        return self.chooser.choose(logits, tolerance, allowed, self.wish)

    def distribution(self, logits: Logits) -> Distribution:
        """The distribution of the next token; see `choose`."""
        allowed = None if self.control is None else self.control.allowed()
        return self.chooser.distribution(logits, allowed)

    def told(self, choice: Choice, logits: Logits) -> Choice:
        """A choice that a rule has made, with its scores if they are wanted."""
        if self.wish is None:
            return choice
        allowed = None if self.control is None else self.control.allowed()
        scores = self.chooser.scores(logits, choice.token, self.wish, allowed)
        return choice._replace(scores=scores)

    @property
    def forced(self) -> Series[int]:
        """The tokens that come next without the model being asked; none if the model decides."""
        return () if self.control is None or self.finish else self.control.forced()

    def forced_choice(self, logits: Logits) -> Choice | None:
        """The next token where the model does not decide, with its scores if they are wanted."""
        token = next(iter(self.forced), None)
        if token is None:
            return None
        scores = None
        if self.wish is not None:
            scores = raw_scores(logits, token, self.wish.top)
            if self.wish.post_sampling:
                scores = Scores(0.0, ((token, 0.0),))
        return Choice(token, scores=scores)

    def fast_forward(self) -> None:
        """Commit the tokens that come next anyway, unless the model has to score them.

        Raises:
            ControlError: the control has failed.
        """
        while self.wish is None and (forced := self.forced):
            self.commit(Choice(forced[0]))

    def commit(self, choice: Choice) -> None:
        """Decide one token, for good; it may end the request.

        Raises:
            ControlError: the control does not take the token. It is not committed then.
        """
        if self.control is not None:
            self.control.advance(choice.token)
        if choice.near_tie:
            self.counts.near_tie_positions.append(self.position)
        if choice.scores is not None:
            self.scores.append(choice.scores)
        self.committed.append(choice.token)
        self.chooser.advance(choice)
        self.finish = self.ending.after(choice.token, self.generated, len(self.committed))
        if self.finish is None and self.control is not None and self.control.finished:
            self.finish = Finish("stop", self.control.finished)

    def shift(self, keep: int, discard: int) -> None:
        """Take tokens that the model is to forget out of `committed`; see `engine/context_shift`.

        Args:
            keep: how many stay in front of them, no more than the prompt has.
            discard: how many they are; at least one token stays behind them.
        """
        taken = self.committed[keep : keep + discard]
        prompt = min(discard, max(0, self.prompt_length - keep))
        del self.committed[keep : keep + discard]
        self.shed += taken[prompt:]
        self.prompt_length -= prompt
        self.gone += discard
        self.intact = min(self.intact, keep)
        self.sound = len(self.committed) - 1

    def resume(
        self, tokens: Series[int], near_ties: Container[int] = (), mu: float | None = None
    ) -> None:
        """Commit what was decided in an earlier life.

        Args:
            tokens: the tokens behind the prompt.
            near_ties: positions of those that were near ties.
            mu: mirostat's state behind them; None without it.

        Raises:
            ControlError: the control does not take them, so that they can't be its text's.
        """
        for token in tokens:
            self.commit(Choice(token, near_tie=self.position in near_ties))
        if mu is not None:
            self.chooser.mu = mu

    def fail(self, reason: str, *, own: bool = False) -> None:
        """Go no further, for a reason in words. What is committed stands.

        Args:
            reason: why.
            own: whether it lies in what the request asks for.
        """
        self.fault = reason
        self.own_fault = own
