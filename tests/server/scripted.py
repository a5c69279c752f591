"""A runtime that says a text of the test's choice, behind a chat template of its choice."""

from collections.abc import Sequence as Series
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed
from surefoot.runtime.base import ModelInfo
from surefoot.runtime.simulated import SimulatedRuntime, SimulatedTokenizer

MARK = "\x02"
"""What ends a prompt: the script begins behind the last one."""

HERMES = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}{{ message.content }}{% endfor %}"
    "{# <tool_call> </think> #}" + MARK
)
"""A template of a model with Hermes' tool calls, that may reason."""

HERMES_WITHOUT_REASONING = HERMES.replace(" </think>", "")

CERTAIN = 30.0
SIZE = 512


class TaggedTokenizer(SimulatedTokenizer):
    """Has single tokens for some tags, whose texts are not shown to those who don't ask."""

    def __init__(self, tags: Series[str]) -> None:
        super().__init__(SIZE)
        self.tags = {400 + index: tag for index, tag in enumerate(tags)}

    def encode(self, text: str, *, special: bool = True, add_special: bool = False) -> list[int]:
        for token, tag in self.tags.items():
            if special and tag in text:
                before, _, behind = text.partition(tag)
                return [*self.encode(before), token, *self.encode(behind)]
        return super().encode(text, special=special, add_special=add_special)

    def piece(self, token: int) -> bytes:
        return b"" if token in self.tags else super().piece(token)

    def text_of(self, token: int) -> str:
        return self.tags.get(token) or super().text_of(token)


class ScriptedRuntime(SimulatedRuntime):
    """Says its script and ends. If something else was said in its place, it ends as soon as it may.

    Args:
        script: the text; MARK is not in it.
        template: the chat template, which ends with MARK.
        tags: tags that are single tokens.
        slots: how many requests run at once.
    """

    def __init__(
        self, script: str, template: str = MARK, tags: Series[str] = (), slots: int = 2
    ) -> None:
        super().__init__("attention", vocabulary_size=SIZE, slots=slots, can_fork=False)
        self.tokenizer = TaggedTokenizer(tags)
        self._script = self.tokenizer.encode(script)
        self._template = template
        self._held: dict[int, list[int]] = {}
        [self._mark] = self.tokenizer.encode(MARK)

    @property
    def info(self) -> ModelInfo:
        return replace(super().info, chat_template=self._template)

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        found = []
        for feed, rows in zip(feeds, super().decode(feeds), strict=True):
            held = self._held.get(feed.sequence, [])[: feed.start] + list(feed.tokens)
            self._held[feed.sequence] = held
            rows = np.zeros_like(rows)
            rows[:, ord("!") : 127] = 5.0  # where a mask leaves nothing better: no blanks,
            rows[:, [ord('"'), ord("}")]] = 6.0  # and an end soon
            for index in range(feed.outputs):
                known = held[: len(held) - feed.outputs + index + 1]
                rows[index, self._next(known)] = CERTAIN
            found.append(rows)
        return found

    def _next(self, known: list[int]) -> int:
        """The next token of the script: what has been said may be cut into tokens otherwise."""
        start = max((at for at, token in enumerate(known) if token == self._mark), default=-1) + 1
        said, rest = self._text(known[start:]), list(self._script)
        while rest and said and said.startswith(self._text(rest[:1])):
            said = said[len(self._text(rest[:1])) :]
            del rest[0]
        end = min(self.tokenizer.end_of_generation)
        if said and rest and self._text(rest[:1]).startswith(said):
            missing = self._text(rest[:1])[len(said) :]
            return self.tokenizer.encode(missing.decode())[0]
        return rest[0] if rest and not said else end

    def _text(self, tokens: Series[int]) -> bytes:
        tokenizer = self.tokenizer
        return b"".join(tokenizer.piece(t) or tokenizer.text_of(t).encode() for t in tokens)
