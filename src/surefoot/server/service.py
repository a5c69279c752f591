"""What all endpoints share: the engine, its model, and the defaults of requests."""

import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from surefoot.chat import ChatTemplate
from surefoot.chat.formats import Format
from surefoot.constraints import Controls
from surefoot.decoding import RuleName, Sampling
from surefoot.engine import EngineHandle, Exactness, Facts
from surefoot.runtime.base import Tokenizer


@dataclass(frozen=True, slots=True)
class Service:
    """An engine that is served.

    Attributes:
        engine: the engine.
        template: the model's chat template.
        model_name: what the server calls its model.
        defaults: sampling parameters for what a request leaves out; the seed is not used.
        seed: the seed of requests that give none; None draws one for each.
        max_tokens: most tokens of requests that set no limit; None for the rest of the context.
        format: how the model writes reasoning and tool calls.
        exact: the level of exactness of requests that choose none.
        rule: how drafts are verified where requests choose nothing.
        reasoning_format: "none" leaves reasoning in the content.
        reasoning_budget: most tokens of reasoning; -1 for no limit.
        most_bytes: largest request body.
        ping_seconds: a stream that has been silent so long sends a comment.
        slot_folder: where slots are saved; None if they can't be.
        started: when, in Unix time.
    """

    engine: EngineHandle
    template: ChatTemplate
    model_name: str
    defaults: Sampling
    seed: int | None
    max_tokens: int | None
    format: Format
    exact: Exactness
    rule: RuleName
    reasoning_format: str
    reasoning_budget: int
    most_bytes: int
    ping_seconds: float
    slot_folder: Path | None = None
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def facts(self) -> Facts:
        """What the engine is."""
        return self.engine.facts

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.engine.tokenizer

    @property
    def controls(self) -> Controls:
        """Makes controls for the model's vocabulary.

        Raises:
            TokenizerMissingError: the model file has no tokenizer.
        """
        return self.engine.controls

    def special_token(self, text: str) -> int | None:
        """The id of a special token by its text; None if the vocabulary has none like that."""
        tokenizer = self.tokenizer
        tokens = tokenizer.encode(text, special=True)
        single = len(tokens) == 1 and not tokenizer.piece(tokens[0])
        return tokens[0] if single and tokenizer.text_of(tokens[0]) == text else None

    @property
    def markup(self) -> frozenset[int]:
        """The special tokens whose text the format's parser has to see."""
        found = (self.special_token(text) for text in self.format.markup)
        return frozenset(token for token in found if token is not None)

    @property
    def thinks(self) -> bool:
        """Whether the model may reason, going by its chat template."""
        tags = self.format.reasoning
        return tags is not None and tags.end in self.template.source

    def encode(self, text: str) -> list[int]:
        """A prompt in tokens, with what the model wants around it unless it is there already.

        Raises:
            TokenizerMissingError: the model file has no tokenizer.
        """
        bos = self.facts.info.bos_text
        complete = bool(bos) and text.startswith(bos)
        return self.tokenizer.encode(text, add_special=not complete)

    def seed_for(self, wanted: int | None) -> int:
        """The seed of a request: its own, else the server's; -1 is a fresh one."""
        seed = self.seed if wanted is None else wanted
        return secrets.randbits(32) if seed in (None, -1) else seed

    def speculation_off(self, max_draft: int | None) -> str | None:
        """Why a request with this limit on drafts gets none, in words; None if it may."""
        if max_draft == 0:
            return "the request turned it off"
        if self.drafter is None:
            return "the server runs without a drafter"
        if self.facts.max_draft == 0:
            return (
                "a pass has no room for drafts; start with a larger batch size (-b) or fewer slots"
            )
        if self.facts.rollback.kind == "none":
            return "the model's memory can't undo rejected tokens"
        return None

    @property
    def drafters(self) -> list[str]:
        """The names of all drafters, in the order in which they are asked."""
        return list(self.facts.depths)

    @property
    def drafter(self) -> str | None:
        """The drafter's name; None if there is none."""
        return self.facts.drafter
