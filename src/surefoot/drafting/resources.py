"""What drafters need besides settings: what the target is like, and models that are loaded."""

from dataclasses import dataclass

from surefoot.decoding import Head
from surefoot.drafting.draft_model import DraftRuntime


@dataclass(frozen=True, slots=True)
class Resources:
    """What is known of models. Who loaded them closes them, after the drafter.

    Attributes:
        vocabulary_size: how many tokens the target has; None if that is not known.
        draft_model: for `draft-simple`, with as many slots as the target.
        shared_tokens: how many token ids mean the same to it and the target; see `vocabulary`.
        head: for `draft-mtp`.
        head_tokens: how many token ids mean the same to it and the target; None if all do.
    """

    vocabulary_size: int | None = None
    draft_model: DraftRuntime | None = None
    shared_tokens: int | None = None
    head: Head | None = None
    head_tokens: int | None = None
