"""Beginning sequences and playing rounds for them until all have ended."""

from collections.abc import Sequence as Series

from surefoot.decoding import (
    GREEDY,
    Drafter,
    Ending,
    Outcome,
    Round,
    Sampling,
    Sequence,
    Target,
    absorb,
    memory_for,
)


def begin(
    target: Target,
    prompt: Series[int],
    *,
    slot: int = 0,
    slots: int = 1,
    sampling: Sampling = GREEDY,
    ending: Ending | None = None,
    max_draft: int = 16,
) -> Sequence:
    """A sequence whose prompt is absorbed but for its last token."""
    sequence = Sequence(
        committed=list(prompt),
        memory=memory_for(target, slot, spare_id=slots + slot),
        sampling=sampling,
        ending=ending or Ending(),
        max_draft=max_draft,
    )
    absorb(target, sequence, most=len(prompt))
    return sequence


def play_out(
    target: Target,
    sequences: Series[Sequence],
    drafter: Drafter | None = None,
    *,
    most_rounds: int = 500,
) -> list[list[Outcome]]:
    """Play rounds until all sequences have ended; what each round did.

    Raises:
        AssertionError: they have not ended after so many rounds.
    """
    round_ = Round(target, drafter)
    rounds: list[list[Outcome]] = []
    while live := [sequence for sequence in sequences if sequence.finish is None]:
        assert len(rounds) < most_rounds, f"still going after {most_rounds} rounds"
        rounds.append(round_.play(live))
    return rounds


def generated(sequence: Sequence) -> list[int]:
    """The tokens behind the prompt."""
    return sequence.committed[sequence.prompt_length :]
