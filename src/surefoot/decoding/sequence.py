"""A sequence: the journal of what is decided, and the memory that may lag behind it.

`committed` is append-only; nothing ever decides its tokens again. `pending` is what the model's
memory still owes. Both numbers together are all there is to know about a request in progress.
"""

from dataclasses import dataclass, field

from surefoot.decoding.counts import Counts
from surefoot.decoding.ending import Ending, Finish
from surefoot.decoding.memory import Memory
from surefoot.decoding.sampling import Choice, Sampling


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

    def __post_init__(self) -> None:
        """Take what is committed so far as the prompt, unless told otherwise."""
        if not self.committed:
            raise ValueError("a sequence needs at least one token to go on from")
        self.prompt_length = self.prompt_length or len(self.committed)

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
        return self.memory.length < len(self.committed)

    @property
    def generated(self) -> int:
        """How many tokens have been generated."""
        return len(self.committed) - self.prompt_length

    @property
    def room(self) -> int:
        """How many more tokens the limits allow, at least 1 while the request goes on."""
        return self.ending.room(self.generated, len(self.committed))

    def commit(self, choice: Choice) -> None:
        """Decide one token, for good; it may end the request."""
        if choice.near_tie:
            self.counts.near_tie_positions.append(len(self.committed))
        self.committed.append(choice.token)
        self.finish = self.ending.after(choice.token, self.generated, len(self.committed))
