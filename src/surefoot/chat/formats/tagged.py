"""Formats in which tags stand around reasoning and calls: one parser for all of them."""

from collections.abc import Callable
from collections.abc import Sequence as Series
from itertools import groupby

from surefoot.chat.formats.base import (
    CallArguments,
    CallStart,
    ContentDelta,
    Event,
    ReasoningDelta,
    Tags,
)
from surefoot.chat.formats.calls import CallReader, Progress
from surefoot.chat.formats.scanning import TagScanner

THINK = Tags("<think>", "</think>")

BLANKS = " \t\n\r\v\f"
"""Whitespace that may stand around tags; the rules for reasoning know no other."""

MakeReader = Callable[[str], CallReader]
"""Makes a reader for the calls behind a trigger."""


class TaggedParser:
    """Takes an answer apart at tags; see `Parser`.

    Args:
        reasoning: the tags around reasoning; None if it is not told apart.
        opened: whether reasoning has begun already.
        triggers: what begins a call; none if calls are not told apart.
        reader: reads calls.
        closings: tags that belong to nothing and are left out, such as the end of a section.
        at_start: triggers that count at the beginning of the answer only, and are part of the call;
            blanks between their characters don't matter.
        bound: whether the answer begins at the first end tag of reasoning; see `Format.parser`.
    """

    def __init__(
        self,
        reasoning: Tags | None,
        *,
        opened: bool,
        triggers: Series[str],
        reader: MakeReader,
        closings: Series[str] = (),
        at_start: Series[str] = (),
        bound: bool = False,
    ) -> None:
        self._reasoning = reasoning
        self._bound = bound
        self._inside = opened and reasoning is not None
        self._triggers = triggers
        self._make = reader
        self._closings = closings if triggers else ()
        self._at_start = at_start
        self._scanner = TagScanner()
        self._reader: CallReader | None = None
        self._raw = ""
        self._begun = False
        self._index = -1
        self._broken = False  # a call was given up before its arguments were complete
        self._fresh = True  # nothing but blanks has been said since the last tag
        self._blanks = ""
        self._behind_tag = self._inside
        self._may_think = True  # nothing has been said that reasoning must not stand behind
        self._thought = False
        self._lead = ""  # what may become a call that begins without a tag

    def feed(self, text: str) -> list[Event]:
        """What a further piece of text brings."""
        events: list[Event] = []
        while text:
            if self._reader is not None:
                text = self._read_call(text, events)
            else:
                text = self._read_text(text, events)
        return _joined(events)

    def finish(self) -> list[Event]:
        """What was held back."""
        events: list[Event] = []
        if self._reader is not None and not self._begun:
            self._say(self._raw, events)
        rest = self._scanner.rest() or self._lead
        if rest:
            self._tell(rest, events)
        if self._fresh and not self._behind_tag and self._blanks:
            events.append(ContentDelta(self._blanks))  # an answer of blanks alone
        return events

    @property
    def cut(self) -> bool:
        """Whether a call is incomplete; see `Parser`."""
        return self._broken or (self._reader is not None and not self._reader.whole)

    # Text

    def _read_text(self, text: str, events: list[Event]) -> str:
        if self._at_start and not self._inside:
            text, self._lead = self._lead + text, ""
            start = "".join(text.split())
            if any(start.startswith(trigger) for trigger in self._at_start):
                self._at_start = ()
                self._begin("")
                return text
            if any(trigger.startswith(start) for trigger in self._at_start):
                self._lead = text
                return ""
            self._at_start = ()
        front, tag, rest = self._scanner.feed(text, self._tags)
        if front:
            self._tell(front, events)
        if tag is None:
            return ""
        if not (self._inside or self._may_think) and tag in self._thinking:
            self._tell(tag, events)  # reasoning comes before the answer or not at all
            return rest
        self._pass_tag(tag)
        return rest

    @property
    def _tags(self) -> list[str]:
        if self._inside and self._reasoning is not None:
            return [self._reasoning.end]
        return [*self._triggers, *self._closings, *(self._thinking if self._may_think else ())]

    @property
    def _thinking(self) -> tuple[str, ...]:
        """The tags that begin reasoning, or are strays behind it."""
        if self._reasoning is None:
            return ()
        start, end = self._reasoning.start, self._reasoning.end
        return (start,) if self._bound else (start, end)

    def _pass_tag(self, tag: str) -> None:
        if self._behind_tag or tag not in self._triggers:
            self._blanks = ""
        self._fresh = self._behind_tag = True
        if self._inside:
            self._inside, self._may_think = False, not self._bound
        elif self._reasoning is not None and tag == self._reasoning.start:
            self._inside = True
        elif tag not in self._thinking:
            self._may_think = False
            if tag in self._triggers:
                self._begin(tag)

    def _tell(self, text: str, events: list[Event]) -> None:
        """Text as what it is; blanks at its beginning wait to see whether there is more."""
        if self._fresh:
            text = self._blanks + text
            stripped = text.lstrip(BLANKS)
            if not stripped:
                self._blanks = text
                return
            self._fresh, self._blanks = False, ""
            goes_on = self._inside and self._thought  # so its blanks part it from what came before
            text = stripped if self._behind_tag and not goes_on else text
        if self._inside:
            self._thought = True
            events.append(ReasoningDelta(text))
        else:
            self._may_think = False
            events.append(ContentDelta(text))

    def _say(self, text: str, events: list[Event]) -> None:
        self._fresh = self._may_think = False
        events.append(ContentDelta(self._blanks + text))
        self._blanks = ""

    # Calls

    def _begin(self, trigger: str) -> None:
        self._reader, self._raw, self._begun = self._make(trigger), trigger, False

    def _read_call(self, text: str, events: list[Event]) -> str:
        reader = self._reader
        assert reader is not None
        for at, char in enumerate(text):
            progress = reader.feed(char)
            understood = bool(reader.out)
            self._collect(reader, events)
            if progress is not Progress.FAILED:
                self._raw = "" if understood else self._raw + char
            if progress is Progress.MORE:
                continue
            self._reader = None
            self._fresh = self._behind_tag = True
            if progress is Progress.DONE:
                return text[at + 1 :]
            self._broken = self._broken or (self._begun and not reader.whole)
            # What was no part of a call after all is part of the answer.
            raw = self._raw.lstrip() if self._begun else self._raw
            if raw:
                self._say(raw, events)
            return text[at:]
        return ""

    def _collect(self, reader: CallReader, events: list[Event]) -> None:
        for found in reader.out:
            if isinstance(found, tuple):
                self._index += 1
                self._begun = True
                events.append(CallStart(self._index, found[0]))
            elif found:
                events.append(CallArguments(self._index, found))
        reader.out.clear()


def _joined(events: list[Event]) -> list[Event]:
    """Events with arguments that follow each other as one."""
    joined: list[Event] = []
    for _, group in groupby(events, lambda event: isinstance(event, CallArguments)):
        pieces = list(group)
        texts = [piece for piece in pieces if isinstance(piece, CallArguments)]
        if texts:
            joined.append(CallArguments(texts[0].call, "".join(piece.text for piece in texts)))
        else:
            joined += pieces
    return joined
