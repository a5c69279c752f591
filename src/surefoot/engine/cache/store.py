"""A store: kept states within a budget of bytes, and which of them goes when it is full."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from surefoot.engine.cache.tokens import Tokens, common

Payload = TypeVar("Payload")


@dataclass(slots=True, eq=False)
class Entry(Generic[Payload]):
    """The state of a text.

    Attributes:
        tokens: the text.
        payload: where the state is, or the state itself.
        size: bytes that it takes whatever else is there.
        used: the store's clock when it was last of use.
        owner: whose work it is, as long as that may still fail; None once it has succeeded. Until
            then nobody is given it.
        parent: the longest other entry that this text begins with.
    """

    tokens: Tokens
    payload: Payload
    size: int
    used: int
    owner: object | None = None
    parent: "Entry[Payload] | None" = None

    @property
    def gap(self) -> int:
        """How many tokens behind its parent it stands: what would have to be absorbed again."""
        return len(self.tokens) - (0 if self.parent is None else len(self.parent.tokens))


class Store(Generic[Payload]):
    """Entries of one tier.

    Args:
        budget: bytes.
        token_bytes: bytes that an entry takes for each token that it does not share with its
            parent, beside its size. Where a parent of several is gone, what they share is counted
            for each.

    Attributes:
        budget: the same.
        used_bytes: bytes that all entries take.
        count: how many there are.
    """

    def __init__(self, budget: int, token_bytes: int = 0) -> None:
        self.budget = budget
        self.used_bytes = 0
        self.count = 0
        self._token_bytes = token_bytes
        self._clock = 0
        self._entries: list[Entry[Payload]] = []

    def __iter__(self) -> Iterator[Entry[Payload]]:
        return iter(list(self._entries))

    def matches(self, text: Tokens) -> list[tuple[int, Entry[Payload]]]:
        """All entries that may be given away, with how many first tokens they share with a text."""
        return [(common(e.tokens, text), e) for e in self._entries if e.owner is None]

    def held(self, text: Tokens, owner: object | None = None) -> Entry[Payload] | None:
        """The entry of exactly that text, if it may be given away or is the owner's."""
        for entry in self._entries:
            same = len(entry.tokens) == len(text) and common(entry.tokens, text) == len(text)
            if same and entry.owner in (None, owner):
                return entry
        return None

    def touch(self, text: Tokens) -> None:
        """Take note that a text is in use, and with it all states that it could go on from."""
        self._clock += 1
        for entry in self._entries:
            if len(entry.tokens) <= len(text) and common(entry.tokens, text) == len(entry.tokens):
                entry.used = self._clock

    def cost(self, text: Tokens, size: int) -> int:
        """Bytes that an entry would take."""
        parent = self._parent(text)
        shared = 0 if parent is None else len(parent.tokens)
        return size + self._token_bytes * (len(text) - shared)

    def add(
        self, text: Tokens, payload: Payload, size: int, owner: object | None = None
    ) -> Entry[Payload]:
        """Keep a state. The budget may be exceeded afterwards; see `victim`."""
        parent = self._parent(text)
        entry = Entry(text, payload, size, self._clock, owner, parent)
        for other in self._entries:
            if other.parent is parent and _begins(other.tokens, text):
                self.used_bytes -= self._token_bytes * other.gap
                other.parent = entry
                self.used_bytes += self._token_bytes * other.gap
        self._entries.append(entry)
        self.count += 1
        self.used_bytes += size + self._token_bytes * entry.gap
        return entry

    def remove(self, entry: Entry[Payload]) -> None:
        """Forget a state; those behind it stand further behind their next parent."""
        self._entries.remove(entry)
        self.count -= 1
        self.used_bytes -= entry.size + self._token_bytes * entry.gap
        for other in self._entries:
            if other.parent is entry:
                self.used_bytes -= self._token_bytes * other.gap
                other.parent = entry.parent
                self.used_bytes += self._token_bytes * other.gap

    @property
    def full(self) -> bool:
        """Whether the entries take more than the budget."""
        return self.used_bytes > self.budget

    def victim(self) -> Entry[Payload] | None:
        """The entry that is worth least: few tokens to absorb again, not of use for long."""
        clock = self._clock
        return min(
            self._entries, key=lambda e: (e.gap / (clock - e.used + 1), e.used), default=None
        )

    def superseded(self, text: Tokens) -> list[Entry[Payload]]:
        """Entries that the text begins with, and that are not the text itself."""
        return [
            entry
            for entry in self._entries
            if entry.owner is None and len(entry.tokens) < len(text) and _begins(text, entry.tokens)
        ]

    def of(self, owner: object) -> list[Entry[Payload]]:
        """What somebody's work has left so far."""
        return [entry for entry in self._entries if entry.owner is owner]

    def _parent(self, text: Tokens) -> Entry[Payload] | None:
        begun = [e for e in self._entries if len(e.tokens) < len(text) and _begins(text, e.tokens)]
        return max(begun, key=lambda e: len(e.tokens), default=None)


def _begins(text: Tokens, beginning: Tokens) -> bool:
    """Whether a text begins like that."""
    return len(beginning) <= len(text) and common(text, beginning) == len(beginning)
