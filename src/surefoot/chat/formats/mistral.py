"""Mistral's calls: a list of objects, or names with arguments, behind `[TOOL_CALLS]`."""

from surefoot.chat.formats.calls import (
    CallReader,
    NamedReader,
    ObjectReader,
    Progress,
    SeveralReader,
)

BETWEEN = r"(?:\[CALL_ID\]\s*[A-Za-z0-9_\-]+\s*)?(?:\[ARGS\])?"
"""What may stand between a name and its arguments; some models give the call an id of its own."""


class MistralReader:
    """Reads `[{"name": .., "arguments": {..}}, ..]` or `name[ARGS]{..}`; see `CallReader`."""

    def __init__(self) -> None:
        self.out: list[tuple[str] | str] = []
        self._inner: CallReader | None = None

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        if self._inner is None:
            if char.isspace():
                return Progress.MORE
            self._inner = SeveralReader(ObjectReader, "]") if char == "[" else NamedReader(BETWEEN)
            self.out = self._inner.out
            if char == "[":
                return Progress.MORE
        return self._inner.feed(char)

    @property
    def whole(self) -> bool:
        """Whether no call is open."""
        return self._inner is not None and self._inner.whole
