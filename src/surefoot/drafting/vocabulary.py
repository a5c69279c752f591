"""Whether a draft model means the same tokens as the target.

Only what tokens stand for is compared. How a file calls its tokenizer makes no difference, and
neither does padding: ids without text at the end are as good as none.
"""

from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Protocol

from surefoot.decoding import SurefootError


class VocabularyMismatchError(SurefootError):
    """A draft model's tokens are not the target's; the text says which differ."""


class TokenTexts(Protocol):
    """What a tokenizer has to tell."""

    def piece(self, token: int) -> bytes:
        """A token's text; empty for special tokens."""

    def text_of(self, token: int) -> str:
        """The same, special tokens as they are written in prompts; empty if there is no such."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A model's tokens.

    Attributes:
        model: what to call the model in messages.
        texts: each token's text, special tokens' as they are written in prompts; empty for ids
            that stand for nothing.
        special: ids of special tokens.
    """

    model: str
    texts: Series[bytes]
    special: frozenset[int] = frozenset()

    @classmethod
    def of(cls, model: str, size: int, tokenizer: TokenTexts) -> "Vocabulary":
        """The tokens that a tokenizer knows.

        Args:
            model: what to call the model in messages.
            size: how many ids there are.
            tokenizer: the model's.
        """
        texts = [tokenizer.piece(token) for token in range(size)]
        special = set()
        for token, piece in enumerate(texts):
            if not piece and (written := tokenizer.text_of(token)):
                texts[token] = written.encode()
                special.add(token)
        return cls(model, texts, frozenset(special))

    @property
    def used(self) -> int:
        """How many ids there are up to the last one that stands for something."""
        return next((n for n in range(len(self.texts), 0, -1) if self.texts[n - 1]), 0)

    def describe(self, token: int) -> str:
        """A token in words."""
        text = self.texts[token]
        if not text:
            return "nothing"
        kind = "the special token " if token in self.special else ""
        try:
            return f"{kind}{text.decode()!r}"
        except UnicodeDecodeError:
            return f"{kind}{text!r}"


def shared_tokens(target: Vocabulary, draft: Vocabulary) -> int:
    """How many ids, from 0 on, mean the same to a target and to a draft model.

    One of them may know more tokens behind those that both know; such a tail is not counted.

    Raises:
        VocabularyMismatchError: they differ elsewhere, or one has no tokenizer to go by.
    """
    for vocabulary, role in ((target, "target"), (draft, "draft model")):
        if vocabulary.used == 0:
            raise VocabularyMismatchError(
                f"can't draft for {target.model} with {draft.model}: the {role}'s file carries no "
                "tokenizer, so nobody can tell what its tokens stand for. Use files with one."
            )
    shared = min(target.used, draft.used)
    differing = [i for i in range(shared) if target.texts[i] != draft.texts[i]]
    if not differing:
        return shared
    first = differing[0]
    others = f"; {len(differing) - 1:,} more differ" if len(differing) > 1 else ""
    raise VocabularyMismatchError(
        f"can't draft for {target.model} with {draft.model}: their tokens differ. Token {first} is "
        f"{target.describe(first)} to the target and {draft.describe(first)} to the draft model"
        f"{others}, of {shared:,} that could be the same (the target has {len(target.texts):,} "
        f"tokens, the draft model {len(draft.texts):,}). Use a draft model of the target's own "
        "family, with the same tokenizer (-md)."
    )
