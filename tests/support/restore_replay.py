"""The counter-example: restore, replay, verify again. How a server can stall.

Modelled on llama-server as DESIGN.md describes it (pull request 28061, issue 28060) and on cases
C1 to C3. After a partial acceptance the state is restored, and what was accepted, the target's
own next token included, becomes the next draft; it goes through the same verification as a fresh
one. Nothing is emitted before a draft is accepted as a whole. That the target's own token is part
of the replay shows in its log: "accepted 0/8", then "accepted 0/1" at the same position.

For tests only: this is what surefoot must never do.
"""

from collections.abc import Sequence as Series
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Choice, Draft, Drafter, Feed, Sequence, Target, choose


@dataclass
class RestoreReplayServer:
    """Serves one sequence; the memory is saved and restored by forks to a spare id.

    Attributes:
        target: the model.
        drafter: proposes the fresh drafts.
        sequence: the request. Of its memory only the id is used.
        spare: id that holds the saved state.
        passes: forward passes so far.
        wasted: passes that emitted nothing.
        restores: the length of the sequence at each restore.
    """

    target: Target
    drafter: Drafter
    sequence: Sequence
    spare: int = 1
    passes: int = 0
    wasted: int = 0
    restores: list[int] = field(default_factory=list)
    _replay: Series[int] | None = None

    def step(self) -> int:
        """One pass; how many tokens it emitted, which may be none."""
        sequence, memory = self.sequence, self.sequence.memory
        before = len(sequence.committed)
        draft = self._replay or self._fresh_draft()
        self._replay = None
        self.target.drop(self.spare)
        self.target.fork(memory.id, self.spare, 0, before - 1)
        feed = Feed(memory.id, [sequence.committed[-1], *draft], before - 1, 1 + len(draft))
        rows = self.target.decode([feed])[0]
        self.passes += 1
        choices = self._judged(draft, rows)
        if len(choices) <= len(draft):
            self.target.drop(memory.id)
            self.target.fork(self.spare, memory.id, 0, before - 1)
            self.restores.append(before)
            self._replay = [choice.token for choice in choices]
            self.wasted += 1
            return 0
        for choice in choices:
            sequence.commit(choice)
            if sequence.finish:
                break
        return len(sequence.committed) - before

    def _judged(self, draft: Series[int], rows: NDArray[np.float32]) -> list[Choice]:
        """The target's choices up to the first that is not the draft's."""
        sequence, choices = self.sequence, list[Choice]()
        for offset, row in enumerate(rows):
            position = len(sequence.committed) + offset
            choices.append(choose(row, sequence.sampling, position, self.target.logit_noise))
            if offset == len(draft) or choices[-1].token != draft[offset]:
                break
        return choices

    def stalls(self, patience: int) -> bool:
        """Serve the request; True if the same position is restored `patience` times in a row."""
        while self.sequence.finish is None:
            self.step()
            last = self.restores[-patience:]
            if len(last) == patience and len(set(last)) == 1:
                return True
        return False

    def _fresh_draft(self) -> Series[int]:
        room = self.sequence.room - 1
        most = min(self.sequence.max_draft, room)
        draft: Draft = self.drafter.propose([(self.sequence, most)])[0] if most > 0 else Draft()
        return draft.tokens
