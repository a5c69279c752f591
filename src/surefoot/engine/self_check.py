"""Self-check: finished answers scored again without speculation, while there is nothing else to do.

A check plays plain rounds along the answer in a lane of its own, one token at a time, and compares
what the model chooses at each position with what was committed there.
"""

import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import (
    ControlError,
    Draft,
    Judgement,
    Round,
    Sequence,
    SurefootError,
    absorb,
)
from surefoot.engine.lane import Lane

log = logging.getLogger(__name__)

MOST_WAITING = 64
"""So many answers wait for their check at most; further ones are not checked."""


@dataclass(slots=True)
class Agreement:
    """How answers and checks compare.

    Attributes:
        answers: answers whose checks are over, failed ones included.
        equal: tokens that the check chooses, too.
        near_ties: tokens that it does not, where its choice or the answer's is a near tie.
        wrong: tokens that it does not, where neither is.
        failed: checks that could not be carried out.
        wrong_answers: the first few answers with wrong tokens: request ids.
    """

    answers: int = 0
    equal: int = 0
    near_ties: int = 0
    wrong: int = 0
    failed: int = 0
    wrong_answers: list[int] = field(default_factory=list)

    def copy(self) -> "Agreement":
        """As it is now."""
        return replace(self, wrong_answers=list(self.wrong_answers))

    def plus(self, other: "Agreement") -> "Agreement":
        """Both together."""
        return Agreement(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        )


@dataclass(slots=True)
class Check:
    """One answer that is to be checked.

    Attributes:
        request_id: whose it is.
        tokens: prompt and answer.
        near_ties: where the answer's own choices were near ties.
        make: makes a sequence of the prompt in a lane's first slot.
        strict: whether it was decoded strictly.
    """

    request_id: int
    tokens: list[int]
    near_ties: frozenset[int]
    make: Callable[[Lane], Sequence]
    strict: bool


class SelfCheck:
    """Checks a share of answers.

    Args:
        share: how many of all answers, from 0 to 1.
        seed: decides which.
    """

    def __init__(self, share: float, seed: int = 0) -> None:
        self.share = share
        self.agreement = Agreement()
        self._draws = random.Random(seed)
        self._waiting: deque[Check] = deque()  # the one at hand included
        self._current: _Course | None = None

    def wants(self) -> bool:
        """Whether the next answer shall be checked."""
        return self._draws.random() < self.share and len(self._waiting) < MOST_WAITING

    def add(self, check: Check) -> None:
        """Queue a check."""
        self._waiting.append(check)

    @property
    def pending(self) -> bool:
        """Whether there is something to check."""
        return bool(self._waiting)

    @property
    def next_is_strict(self) -> bool:
        """Whether the check at hand needs a strict lane."""
        return self._at_hand.strict

    def step(self, lane: Lane) -> None:
        """Move the check at hand on by one pass.

        Args:
            lane: as `next_is_strict` says, with one slot and no drafter.
        """
        check = self._at_hand
        try:
            if self._current is None:
                self._current = _Course(check, lane)
            going_on = self._current.step(self.agreement)
        except SurefootError as error:
            self.give_up(str(error))
            return
        if not going_on:
            self._note(check.request_id, self._current.wrong)
            self._end()

    def give_up(self, reason: str) -> None:
        """The check at hand can't be carried out, or not to its end."""
        log.warning(
            "the answer to request %d can't be checked: %s", self._at_hand.request_id, reason
        )
        self.agreement.failed += 1
        self._end()

    @property
    def _at_hand(self) -> Check:
        return self._waiting[0]

    def _end(self) -> None:
        self._current = None
        self._waiting.popleft()
        self.agreement.answers += 1

    def _note(self, request_id: int, wrong: list[int]) -> None:
        """Tell of the positions of wrong tokens, if there are any."""
        if not wrong:
            return
        if len(self.agreement.wrong_answers) < MOST_WAITING:
            self.agreement.wrong_answers.append(request_id)
        log.warning(
            "the answer to request %d is not what a check finds, at %d tokens; the first is at "
            "position %d, the prompt's first being 0",
            request_id,
            len(wrong),
            wrong[0],
        )


class _Course:
    """A check under way.

    Raises:
        SurefootError: it can't be begun.
    """

    def __init__(self, check: Check, lane: Lane) -> None:
        self.check = check
        self.wrong: list[int] = []  # positions
        self._lane = lane
        lane.slots[0].memory.clear()
        self._sequence = check.make(lane)
        self._round = Round(lane.runtime, rule=self._judge)
        self._agreement = Agreement()

    def step(self, agreement: Agreement) -> bool:
        """One pass; False when all of the answer has been seen."""
        self._agreement = agreement
        sequence = self._sequence
        if len(sequence.pending) > 1 and absorb(
            self._lane.runtime, sequence, self._lane.runtime.batch_size
        ):
            return True
        self._round.play([sequence])
        if sequence.fault is not None:
            raise ControlError(sequence.fault)
        return sequence.finish is None and len(sequence.committed) < len(self.check.tokens)

    def _judge(
        self,
        sequence: Sequence,
        draft: Draft,  # noqa: ARG002 - there is none
        offset: int,  # noqa: ARG002
        logits: NDArray[np.float32],
        tolerance: float,
    ) -> Judgement:
        """Commit what the answer has, and count whether the model says so, too."""
        choice = sequence.choose(logits, tolerance)
        at = len(sequence.committed)
        token = self.check.tokens[at]
        if choice.token == token:
            self._agreement.equal += 1
        elif choice.near_tie or at in self.check.near_ties:
            self._agreement.near_ties += 1
        else:
            self._agreement.wrong += 1
            self.wrong.append(at)
        return Judgement(choice._replace(token=token), False)
