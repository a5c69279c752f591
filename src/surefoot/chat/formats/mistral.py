"""Mistral's calls: a list of objects, or names with arguments, behind `[TOOL_CALLS]`."""

from surefoot.chat.formats.calls import NamedReader, ObjectReader, Progress


class MistralReader:
    """Reads `[{"name": .., "arguments": {..}}, ..]` or `name[ARGS]{..}`; see `CallReader`."""

    def __init__(self) -> None:
        self.out: list[tuple[str] | str] = []
        self._inner: ObjectReader | NamedReader | None = None
        self._list = False
        self._between = False

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        if self._inner is None:
            if char.isspace():
                return Progress.MORE
            if char == "[":
                self._list, self._inner = True, ObjectReader()
                return Progress.MORE
            self._inner = NamedReader(r"(?:\[ARGS\])?")
        if self._between:
            return self._next(char)
        progress = self._inner.feed(char)
        self.out += self._inner.out
        self._inner.out.clear()
        if progress is Progress.DONE and self._list:
            self._between = True
            return Progress.MORE
        return progress

    def _next(self, char: str) -> Progress:
        if char == "]":
            return Progress.DONE
        if char == ",":
            self._between, self._inner = False, ObjectReader()
        return Progress.MORE if char.isspace() or char == "," else Progress.FAILED
