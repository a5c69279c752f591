"""From a request to what decodes it: its sequence in a slot, and the text that comes of it."""

from surefoot.decoding import Breakers, Control, Ending, Sequence, Transcript
from surefoot.engine.generation import Entry
from surefoot.engine.lane import Lane
from surefoot.engine.request import Request
from surefoot.engine.slot import Slot
from surefoot.engine.text import TextStream
from surefoot.engine.vocabulary import piece_for


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


def stream_of(sequence: Sequence) -> TextStream:
    """What reads a sequence's text as it grows."""
    ending = sequence.ending
    return TextStream(ending.transcript or Transcript(), ending.piece or _no_piece)


def prompt_entries(sequence: Sequence) -> list[Entry]:
    """The prompt's tokens; the first has no score, since nothing stands in front of it."""
    piece = sequence.ending.piece or _no_piece
    tokens = sequence.committed[: sequence.prompt_length]
    scores = [None, *sequence.prompt_scores]
    return [Entry(t, piece(t), s) for t, s in zip(tokens, scores, strict=False)]


def _no_piece(token: int) -> bytes:  # noqa: ARG001 - no token has a text
    return b""
