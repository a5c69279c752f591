"""A simulated runtime with a prompt cache, and chats on it whose texts and work are checked."""

import random
from collections.abc import Sequence as Series
from pathlib import Path
from typing import Any, NamedTuple

from surefoot.engine import Engine, Generation
from surefoot.engine.cache import CacheSettings
from tests.engine.playing import ALL_KINDS, Asker, often_right, play, runtime_of
from tests.support.kinds import KINDS

PROMPT = [300, 301, 257, 256, 270, 271, 272]
NEW = [400, 401, 402]
LONG = random.Random(5).choices(range(310, 512), k=4000)
"""Text for long histories; no other text here begins like it."""
DEPTH = 4
CUTTABLE = ["attention", "windowed"]
FORGETTING = [kind for kind in ALL_KINDS if kind != "attention"]
FORKING = list(KINDS)
KINDS_WITH_FORKS = [kind for kind in FORKING if kind != "attention"]
PLENTY = 1 << 24


class Turn(NamedTuple):
    """A generation, and how many tokens the runtime evaluated for it."""

    generation: Generation
    evaluated: int

    @property
    def absorbed(self) -> int:
        """Tokens of the prompt that were evaluated, if the turn was played without drafts."""
        return self.evaluated - len(self.generation.tokens) + 1

    @property
    def reused(self) -> int:
        """Tokens of the prompt that were not."""
        return len(self.generation.request.prompt) - self.absorbed

    @property
    def origin(self) -> str:
        """Where they came from, as the engine says."""
        return self.generation.summary.reuse.origin

    @property
    def reason(self) -> str:
        """Why there are not more, as the engine says."""
        return self.generation.summary.reuse.reason

    @property
    def history(self) -> list[int]:
        """Prompt and answer."""
        return [*self.generation.request.prompt, *self.generation.tokens]


class Bench:
    """Chats.

    Args:
        kind: kind of memory.
        length: tokens of an answer.
        drafts: prompts whose answers the drafter knows.
        device: bytes of the device tier.
        ram: bytes of the memory tier.
        disk: bytes of the disk tier.
        folder: where that is.
        every: tokens between two checkpoints.
        settings: of the runtime.
    """

    def __init__(
        self,
        kind: str,
        *,
        length: int = 24,
        drafts: Series[Series[int]] = (),
        device: int = PLENTY,
        ram: int = PLENTY,
        disk: int = 0,
        folder: Path | None = None,
        every: int = 64,
        **settings: Any,
    ) -> None:
        self.asker = Asker(kind, length)
        drafter = self.asker.drafter(drafts, often_right) if drafts else None
        self.runtime = runtime_of(kind, **{"checkpoints": 16, **settings})
        self.engine = Engine(
            self.runtime,
            drafter,
            DEPTH,
            cache=CacheSettings(device, ram, disk, folder, every),
        )

    def turn(self, prompt: Series[int], *, draft: bool = False, **fields: Any) -> Turn:
        """Play a turn; it must say what the oracle says."""
        request = self.asker.request(prompt, max_draft=None if draft else 0, **fields)
        before = self.runtime.tokens_evaluated
        generation = self.engine.submit(request, lambda _: None)
        play(self.engine)
        said = self.asker.says(prompt)[: request.max_tokens]
        assert generation.tokens == said, generation.error
        turn = Turn(generation, self.runtime.tokens_evaluated - before)
        if not draft:
            assert (
                turn.reused == generation.summary.cached_tokens == generation.summary.reuse.tokens
            )
        return turn

    def tier(self, name: str) -> dict[str, int]:
        """A tier's figures."""
        figures: dict[str, int] = self.engine.cache.describe()["tiers"][name]
        return figures
