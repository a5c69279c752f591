"""From a request to what decodes it: its sequence in a slot, and the text that comes of it."""

from functools import cached_property

from surefoot.constraints import Controls
from surefoot.decoding import NO_BREAKERS, Breakers, Control, Ending, Sequence, Transcript
from surefoot.decoding.sampling import BreakerFinder
from surefoot.engine.context_shift import shifts
from surefoot.engine.lane import Lane
from surefoot.engine.request import Request
from surefoot.engine.slot import Slot
from surefoot.engine.vocabulary import breaker_finder, controls_for, piece_for
from surefoot.runtime.base import Runtime


class Maker:
    """Makes sequences of requests; what it has to find out about the vocabulary it finds out once.

    Args:
        runtime: the model whose tokens they are.
        context_shift: whether contexts are shifted of requests that say nothing about it.
    """

    def __init__(self, runtime: Runtime, *, context_shift: bool = False) -> None:
        self._runtime = runtime
        self._context_shift = context_shift

    @cached_property
    def controls(self) -> Controls:
        """Makes controls for the model's vocabulary; made when the first is needed."""
        return controls_for(self._runtime)

    @cached_property
    def _finder(self) -> BreakerFinder:
        return breaker_finder(self._runtime)

    def sequence(self, request: Request, lane: Lane, slot: Slot) -> Sequence:
        """A sequence with the request's prompt committed, and what is resumed.

        Raises:
            GrammarError: the grammar is none.
            ControlError: what is resumed breaks the rules.
        """
        control = None if request.control is None else self.controls.control(request.control)
        sequence = sequence_for(request, lane, slot, control, self._breakers_of(request))
        sequence.ending.shifts = shifts(request, default=self._context_shift)
        if request.resumed is not None:
            resumed = request.resumed
            sequence.resume(resumed.tokens, frozenset(resumed.near_ties), resumed.mu)
        return sequence

    def _breakers_of(self, request: Request) -> Breakers:
        """The sequence breakers of DRY; none while it is off."""
        sampling = request.sampling
        if sampling.dry_multiplier == 0:
            return NO_BREAKERS
        return self._finder.find(sampling.dry_sequence_breakers)


def sequence_for(
    request: Request, lane: Lane, slot: Slot, control: Control | None, breakers: Breakers
) -> Sequence:
    """A sequence with the request's prompt committed.

    Args:
        request: what to generate.
        lane: where it runs.
        slot: whose memory it has.
        control: the rules for its text, in their initial state; None for none.
        breakers: what DRY's repeats do not reach across.
    """
    tokenizer = lane.runtime.tokenizer
    wanted = lane.max_draft if request.max_draft is None else request.max_draft
    return Sequence(
        committed=list(request.prompt),
        memory=slot.memory,
        sampling=request.sampling,
        ending=Ending(
            end_of_generation=tokenizer.end_of_generation,
            stop_tokens=request.stop_tokens,
            transcript=Transcript(request.stops),
            piece=piece_for(tokenizer, request.markup),
            max_tokens=request.max_tokens,
            max_length=lane.runtime.context_length,
        ),
        max_draft=min(wanted, lane.max_draft),
        wishes=request.wishes,
        control=control,
        rule=request.rule,
        wish=request.wish,
        score_prompt=request.score_prompt,
        breakers=breakers,
    )
