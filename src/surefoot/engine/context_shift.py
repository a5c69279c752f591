"""Context shift: a text that has filled its context goes on, and the model forgets its middle.

The first tokens stay (`n_keep` of the prompt, at least one), the tokens behind them are given up
(`n_discard`, else half of the rest), and what follows moves down to their positions, as in
llama-server. The model goes on from keys and values that it computed while it still saw what is
gone; so such a text is no straight decode of anything, and nothing behind the gap becomes cache.

Only memory in which positions can be moved can do so, which is attention's; see
`Runtime.shift_refusal`.
"""

import logging

from surefoot.decoding import InvalidParameterError, Sequence
from surefoot.engine.lane import Lane
from surefoot.engine.request import Request
from surefoot.engine.slot import Slot

log = logging.getLogger(__name__)

_RESERVED = 4
"""So many tokens of a context are never kept, so that there is something to give up."""


def check_shift(name: str, refusal: str) -> None:
    """See that the model can shift.

    Args:
        name: what the user called the parameter.
        refusal: `Runtime.shift_refusal`.

    Raises:
        InvalidParameterError: it can't; the text says why.
    """
    if refusal:
        raise InvalidParameterError(
            name,
            f"is not possible with this model: {refusal}; a text ends where its "
            "context does (a larger -c makes that later)",
        )


def shifts(request: Request, *, default: bool) -> bool:
    """Whether a request's text goes on behind the end of its context.

    One without a limit on its tokens would have no end at all, and a strict one's text would hang
    on where it was shifted.

    Args:
        request: the request.
        default: whether those shift that say nothing.
    """
    wanted = default if request.context_shift is None else request.context_shift
    return wanted and request.max_tokens is not None and request.exact == "fast"


def region(sequence: Sequence, request: Request) -> tuple[int, int]:
    """How many tokens to keep, and how many to give up behind them.

    Args:
        sequence: one whose context is full.
        request: its request.
    """
    length, most = len(sequence.committed), sequence.ending.max_length
    assert most is not None
    prompt = sequence.prompt_length
    keep = prompt if request.n_keep < 0 else min(request.n_keep, prompt)
    keep = max(1, min(keep, most - _RESERVED))
    discard = request.n_discard or (length - keep) // 2
    # Room for a token at least, and the last one stays in any case.
    discard = max(discard, length - most + 1)
    return keep, min(discard, length - keep - 1)


def make_room(lane: Lane, slot: Slot) -> None:
    """Shift a slot's text if its context is full and it may."""
    generation, sequence = slot.running
    ending = sequence.ending
    if not ending.shifts or ending.max_length is None or sequence.finish is not None:
        return
    if len(sequence.committed) < ending.max_length:
        return
    keep, discard = region(sequence, generation.request)
    if lane.drafter is not None:
        lane.drafter.forget(sequence)  # what it knows of the text goes by its old positions
    memory = slot.memory
    if memory.length >= keep + discard:
        if lane.runtime.shift(memory.id, keep, discard):
            memory.shifted(discard)
        else:
            log.info("request %d: its context is absorbed again, shifted", generation.id)
            memory.clear()
    elif memory.length > keep:
        memory.settle(keep)
    sequence.shift(keep, discard)
    generation.summary.context_shifts += 1
    if len(sequence.pending) > lane.share:
        slot.prefilling = True
