"""What a client asks for, in tokens."""

from dataclasses import dataclass, field
from typing import Literal

from surefoot.constraints import ControlSpec
from surefoot.decoding import (
    DraftWishes,
    InvalidParameterError,
    RuleName,
    Sampling,
    ScoreWish,
    SurefootError,
)

Exactness = Literal["fast", "strict"]
"""The two levels of the promise; see docs/exactness.md."""


HIGHEST_PRIORITY = 100
"""Priorities lie between this and its negative."""


class PromptTooLongError(SurefootError):
    """The prompt leaves no room for an answer in the context."""

    def __init__(self, prompt_length: int, context_length: int) -> None:
        super().__init__(
            f"the prompt has {prompt_length} tokens and the context holds {context_length}, the "
            f"answer included; shorten the prompt or start with a larger -c"
        )


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was decided of a text before its engine was lost.

    Attributes:
        tokens: the tokens; they have been told, and are not told again.
        near_ties: positions of those that logit noise might have made others.
        mu: mirostat's state behind them; None without it.
    """

    tokens: tuple[int, ...]
    near_ties: tuple[int, ...] = ()
    mu: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to generate.

    Attributes:
        prompt: token ids, at least one.
        sampling: how to choose tokens; its seed makes the text repeatable.
        max_tokens: most tokens to generate, at least 1; None goes on to the end of the context.
        stops: strings at which to stop; they are left out of the text.
        stop_tokens: token ids at which to stop.
        max_draft: most draft tokens a round; 0 turns speculation off; None leaves it to the
            engine, which also caps it.
        wishes: what else is wanted of the drafts.
        exact: "strict" keeps the request in a width class and a context of its own, so that its
            text hangs on nothing but itself; "fast" does not.
        rule: how drafts are verified. "strict" needs "coupled".
        control: what the text must look like; None for no rules.
        wish: what to tell of each token's log-probabilities; None for nothing.
        score_prompt: whether to tell those of the prompt's tokens, too.
        markup: special tokens whose text is shown, for those who parse it.
        message_starts: positions in the prompt at which messages begin, if they are known; the
            prompt cache keeps states there.
        turn_start: where the last user's message begins; 0 if that is not known.
        priority: who has more goes first where requests wait; see `queue.AGEING_SECONDS`.
        queue_timeout: seconds that it waits for a slot; None leaves it to the engine.
        deadline_seconds: seconds after which it ends with what it has; None for none.
        max_predict_seconds: the same, from the first token on, and not within the first line.
        context_shift: whether its text goes on where its context is full; None leaves it to the
            engine. See `engine/context_shift.py`.
        n_keep: so many tokens of the prompt stay then; -1 for all.
        n_discard: so many tokens behind those are given up then; 0 for half of the rest.
        slot: the number of the slot that it waits for; None for any. Not for "strict".
        resumed: how the text begins; None to begin it here.

    Raises:
        InvalidParameterError: a value is outside its range.
    """

    prompt: tuple[int, ...]
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()
    max_draft: int | None = None
    wishes: DraftWishes = field(default_factory=DraftWishes)
    exact: Exactness = "fast"
    rule: RuleName = "coupled"
    control: ControlSpec | None = None
    wish: ScoreWish | None = None
    score_prompt: bool = False
    markup: frozenset[int] = frozenset()
    message_starts: tuple[int, ...] = ()
    turn_start: int = 0
    priority: int = 0
    queue_timeout: float | None = None
    deadline_seconds: float | None = None
    max_predict_seconds: float | None = None
    context_shift: bool | None = None
    n_keep: int = 0
    n_discard: int = 0
    slot: int | None = None
    resumed: Resumed | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.prompt:
            raise InvalidParameterError("prompt", "must not be empty")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidParameterError("max_tokens", "must be at least 1")
        if any(not stop for stop in self.stops):
            raise InvalidParameterError("stop", "stop strings must not be empty")
        if self.max_draft is not None and self.max_draft < 0:
            raise InvalidParameterError("max_draft", "must be 0 (off) or more")
        if not -HIGHEST_PRIORITY <= self.priority <= HIGHEST_PRIORITY:
            raise InvalidParameterError(
                "priority", f"must lie between {-HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}"
            )
        if self.queue_timeout is not None and not self.queue_timeout >= 0:
            raise InvalidParameterError("queue_timeout", "must be 0 seconds or more")
        for name in ("deadline_seconds", "max_predict_seconds"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise InvalidParameterError(name, "must be more than 0 seconds")
        if self.n_keep < -1:
            raise InvalidParameterError("n_keep", "must be -1 (the whole prompt) or more")
        if self.n_discard < 0:
            raise InvalidParameterError("n_discard", "must be 0 (half of what is not kept) or more")
        if self.context_shift and self.exact == "strict":
            raise InvalidParameterError(
                "context_shift",
                "can't be used where exact is strict: the text would hang on where it was shifted",
            )
        if self.rule == "rejection" and self.sampling.mirostat:
            raise InvalidParameterError(
                "verify", "rejection can't be used with mirostat, which steers by single choices"
            )
        if self.exact == "strict" and self.rule != "coupled":
            raise InvalidParameterError(
                "verify",
                "must be coupled where exact is strict: with rejection the text hangs "
                "on the drafts",
            )
