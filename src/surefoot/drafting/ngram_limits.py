"""How far drafts from places in a text were right the last time."""


class Limits:
    """Lengths that drafts of one sequence must keep to, by the place where they begin.

    A place whose last draft was rejected from some token on gives no more tokens than were right.
    """

    __slots__ = ("_accepted", "_last")

    def __init__(self) -> None:
        self._accepted: dict[int, int] = {}
        self._last = 0

    def length(self, start: int, most: int) -> int:
        """How many tokens, at most, a draft from a place may have; it is the last draft now."""
        self._last = start
        return min(most, self._accepted.get(start, most))

    def learn(self, drafted: int, accepted: int) -> None:
        """Hear of the last draft's fate. One accepted in full holds the next one not back."""
        if accepted < drafted:
            self._accepted[self._last] = accepted
