"""Running a record again, plainly and with the drafts that were recorded, and comparing."""

from collections.abc import Sequence as Series
from dataclasses import dataclass, replace

from surefoot.decoding import NO_DRAFT, Draft, Played, Sequence
from surefoot.engine.engine import Engine
from surefoot.engine.generation import GenerationState
from surefoot.engine.lane import LaneOpener
from surefoot.engine.observing import Observer
from surefoot.engine.records.format import Record, RecordError
from surefoot.engine.slot import Slot
from surefoot.runtime.base import Runtime


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which a run and its record part.

    Attributes:
        position: where, in the whole text.
        index: where, in the answer.
        recorded: the token that was recorded; None if the record's answer ends before.
        now: the token of the run; None if the run's answer ends before.
        recorded_gap: between the two largest logits there, as recorded; None if unknown.
        now_gap: the same in the run.
        near_tie: whether either choice was a near tie.
    """

    position: int
    index: int
    recorded: int | None
    now: int | None
    recorded_gap: float | None
    now_gap: float | None
    near_tie: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run beside its record.

    Attributes:
        run: "plain", or "recorded drafts".
        tokens: how many tokens were recorded.
        difference: the first; None if all are equal.
        rounds: rounds of the run.
        same_width: rounds up to the difference whose pass had the recorded width.
        accepted: draft tokens accepted in the run.
    """

    run: str
    tokens: int
    difference: Difference | None
    rounds: int
    same_width: int
    accepted: int

    @property
    def verdict(self) -> str:
        """Equal, near tie, or different."""
        if self.difference is None:
            return "equal"
        return "near tie" if self.difference.near_tie else "different"


class RecordedDrafter:
    """Proposes what was recorded, as long as the text is the recorded one.

    Args:
        record: the record.
    """

    name = "recorded"

    def __init__(self, record: Record) -> None:
        self._text = [*record.request.prompt, *record.tokens]
        self._drafts = {played.at: played.draft for played in record.rounds}

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """The draft that was recorded at this position."""
        return [self._draft(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Nothing is learnt."""

    def forget(self, sequence: Sequence) -> None:
        """Nothing is kept."""

    def _draft(self, sequence: Sequence, most: int) -> Draft:
        at = len(sequence.committed)
        tokens = self._drafts.get(at)
        if not tokens or sequence.committed != self._text[:at]:
            return NO_DRAFT
        return Draft(tuple(tokens[:most]), self.name)


class _Course(Observer):
    """Keeps gaps and widths of a run."""

    def __init__(self) -> None:
        self.gaps: dict[int, float] = {}
        self.widths: dict[int, tuple[int, int, int]] = {}

    def played(self, slots: Series[Slot], parts: Series[Played]) -> None:  # noqa: ARG002
        for part in parts:
            self.gaps |= {part.start + index: gap for index, gap in enumerate(part.gaps())}
            width = (part.pending, len(part.draft.tokens), part.fillers)
            self.widths[part.start] = width


def replay(
    runtime: Runtime, record: Record, drafter: RecordedDrafter, opener: LaneOpener | None = None
) -> list[Comparison]:
    """Run a record again, plainly first and then with its drafts.

    Args:
        runtime: the model; one slot is enough.
        record: the record.
        drafter: made of it.
        opener: opens a lane with that drafter for a strict request.

    Raises:
        RecordError: it can't be run again; the text says why.
        SurefootError: the request is none for this model.
    """
    if record.request.rule != "coupled":
        raise RecordError(
            "the request verified drafts by rejection, so its text hangs on what each draft token "
            "was drawn from, which is not recorded"
        )
    if not record.tokens:
        raise RecordError("nothing was generated, so there is nothing to compare")
    return [
        _run(runtime, record, drafter, opener, "plain", max_draft=0),
        _run(runtime, record, drafter, opener, "recorded drafts", max_draft=None),
    ]


def _run(
    runtime: Runtime,
    record: Record,
    drafter: RecordedDrafter,
    opener: LaneOpener | None,
    name: str,
    max_draft: int | None,
) -> Comparison:
    longest = max((len(played.draft) for played in record.rounds), default=0)
    # Its own watchdog has had its say: here drafts are proposed as long as they were then.
    engine = Engine(runtime, drafter, max(1, longest), opener=opener, patience=0)
    course = _Course()
    engine.observe(course)
    request = replace(record.request, max_tokens=len(record.tokens), max_draft=max_draft)
    try:
        generation = engine.run(request)
    finally:
        engine.forget()
        engine.close()
    if generation.state is GenerationState.FAILED:
        raise RecordError(f"the request can't be run again: {generation.error}")
    counts = generation.summary.counts
    difference = _difference(record, generation.tokens, course, counts.near_tie_positions)
    until = difference.position if difference else 1 << 62
    same = sum(
        course.widths.get(played.at) == (played.pending, len(played.draft), played.fillers)
        for played in record.rounds
        if played.at <= until
    )
    return Comparison(name, len(record.tokens), difference, counts.rounds, same, counts.accepted)


def _difference(
    record: Record, tokens: list[int], course: _Course, near_ties: list[int]
) -> Difference | None:
    recorded = record.tokens
    pairs = enumerate(zip(recorded, tokens, strict=False))
    shorter = min(len(recorded), len(tokens))
    index = next((at for at, (one, other) in pairs if one != other), shorter)
    if index == len(recorded) == len(tokens):
        return None
    position = len(record.request.prompt) + index
    return Difference(
        position=position,
        index=index,
        recorded=recorded[index] if index < len(recorded) else None,
        now=tokens[index] if index < len(tokens) else None,
        recorded_gap=record.gaps.get(position),
        now_gap=course.gaps.get(position),
        near_tie=position in record.near_ties or position in near_ties,
    )
