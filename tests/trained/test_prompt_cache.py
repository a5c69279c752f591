"""The prompt cache on the embedded hybrid: chats, edits, and drafters after a state is restored.

The work is counted at the runtime: how many tokens of a prompt it was given, whoever asked.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Series
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import models
from surefoot.chat.template import ChatTemplate
from surefoot.cli import parser
from surefoot.commands.plan import EnginePlan
from surefoot.decoding import GREEDY, Feed
from surefoot.drafting.keeping import keepers_in
from surefoot.drafting.mtp import MtpDrafter
from surefoot.engine import Engine, Generation, Request
from surefoot.engine.cache import CacheSettings
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from surefoot.runtime.libllama.head import MtpHead
from surefoot.server.message_starts import message_starts
from tests.conftest import FAMILY_FILES
from tests.support.acceptance_prompts import PROMPTS
from tests.support.near_ties import compare
from tests.support.random_models import FAMILIES, random_model

DRAFTERS: dict[str, list[str]] = {
    "none": ["--spec-type", "none"],
    "ngram-simple": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"],
    "draft-simple": ["--spec-type", "draft-simple", "-md", str(models.DRAFT)],
    "draft-mtp": ["--spec-type", "draft-mtp"],
}
WITH_MODELS = ["draft-simple", "draft-mtp"]


class Chats:
    """Conversations with an engine, and what they cost."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        runtime = engine.runtime
        assert isinstance(runtime, LibllamaRuntime)
        self.runtime = runtime
        info = runtime.info
        self.template = ChatTemplate(info.chat_template or "", info.bos_text, info.eos_text)
        self.fed: list[Feed] = []
        decode = runtime.decode

        def counted(feeds: Series[Feed]) -> Any:
            self.fed += feeds
            return decode(feeds)

        runtime.decode = counted  # type: ignore[method-assign]

    def ask(
        self, messages: list[dict[str, str]], length: int = 40, template: ChatTemplate | None = None
    ) -> Generation:
        """Let the model answer a conversation, which grows by that."""
        template = template or self.template
        encode = self.runtime.tokenizer.encode
        prompt = encode(template.render(messages))
        starts = message_starts(template, messages, prompt, encode, opened=False)
        generation = self.run(prompt, length, starts.positions, starts.turn)
        messages.append({"role": "assistant", "content": generation.text})
        return generation

    def run(
        self,
        prompt: Series[int],
        length: int = 40,
        starts: tuple[int, ...] = (),
        turn: int = 0,
    ) -> Generation:
        """Generate."""
        self.fed.clear()
        return self.engine.run(
            Request(
                tuple(prompt), GREEDY, max_tokens=length, message_starts=starts, turn_start=turn
            )
        )

    def absorbed(self, generation: Generation) -> int:
        """How many tokens of the last prompt the runtime was given."""
        end = len(generation.request.prompt)
        return sum(max(0, min(end, f.start + len(f.tokens)) - f.start) for f in self.fed)


@contextmanager
def chats(drafter: str = "none", *options: str, context: int = 4096) -> Iterator[Chats]:
    arguments = ["serve", "-t", "1", "-c", str(context), "-np", "1"]
    parsed = parser().parse_args([*arguments, *DRAFTERS[drafter], *options])
    with EnginePlan.of(parsed, slots=1).open() as engine:
        yield Chats(engine)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def oracle() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.TARGET, context_length=4400, threads=1)) as runtime:
        yield runtime


def check(oracle: LibllamaRuntime, generation: Generation) -> None:
    """The text is the oracle's, up to near ties."""
    oracle.drop(0)
    agreement = compare(oracle, list(generation.request.prompt), generation.tokens, GREEDY)
    assert not agreement.wrong, agreement


def acceptance(generation: Generation) -> float:
    counts = generation.summary.counts
    return counts.accepted / counts.drafted


def head_of(engine: Engine) -> MtpHead:
    """The head that drafts."""
    [drafter] = keepers_in(engine.main.drafter)
    assert isinstance(drafter, MtpDrafter)
    head = drafter._head
    assert isinstance(head, MtpHead)
    return head


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("turns", [2, 10])
def test_each_turn_evaluates_what_is_new_and_a_few_tokens_more(drafter: str, turns: int) -> None:
    with chats(drafter) as made:
        messages: list[dict[str, str]] = []
        before: list[int] = []
        for number in range(turns):
            messages.append(user(PROMPTS[number % len(PROMPTS)]))
            generation = made.ask(messages)
            prompt = list(generation.request.prompt)
            same = next(
                (i for i, (a, b) in enumerate(zip(prompt, before, strict=False)) if a != b),
                min(len(prompt), len(before)),
            )
            new = len(prompt) - same
            absorbed = made.absorbed(generation)
            print(f"{drafter}: {absorbed} for {new} new, {generation.summary.reuse}")
            assert absorbed <= new + 8
            before = [*prompt, *generation.tokens]
        assert generation.summary.cached_tokens > 0


@pytest.mark.parametrize("drafter", ["none", "draft-mtp"])
def test_an_edit_in_the_middle_of_a_long_history_costs_the_way_to_the_nearest_checkpoint(
    drafter: str, oracle: LibllamaRuntime
) -> None:
    with chats(drafter, "--checkpoint-every", "512", context=4400) as made:
        text = " ".join(PROMPTS) * 100
        history = made.runtime.tokenizer.encode(text)[:4000]
        made.run(history, 10)
        for at in (2100, 3900, 700):
            edited = [*history[:at], history[at] ^ 1, *history[at + 1 : at + 60]]
            generation = made.run(edited, 10)
            print(at, generation.summary.reuse)
            assert made.absorbed(generation) <= 60 + 512
            assert f"differs at token {at}" in generation.summary.reuse.reason
            check(oracle, generation)


def test_a_template_that_drops_old_reasoning_costs_the_last_turn_at_most(
    oracle: LibllamaRuntime,
) -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and not loop.last %}{{ m.content[20:] }}"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    with chats("draft-mtp") as made:
        messages = [{"role": "system", "content": PROMPTS[0] * 3}, user(PROMPTS[1])]
        template = ChatTemplate(source)
        first = made.ask(messages, template=template)
        start = first.request.turn_start
        assert start > 0
        messages.append(user("And now?"))
        second = made.ask(messages, template=template)
        assert second.summary.cached_tokens >= start
        assert made.absorbed(second) <= len(second.request.prompt) - start
        check(oracle, second)


@pytest.mark.parametrize("tier", ["device", "host", "disk"])
@pytest.mark.parametrize("drafter", ["none", *WITH_MODELS])
def test_a_conversation_that_comes_back_is_drafted_for_as_before(
    drafter: str, tier: str, tmp_path: Path, oracle: LibllamaRuntime
) -> None:
    """Cases I3 and M4, from each tier: the drafter's state travels with the target's."""
    options = {
        "device": ["--cache-ram", "0"],
        "host": ["--cache-device", "0"],
        "disk": ["--cache-device", "0", "--cache-ram", "0", "--cache-disk", "1G"],
    }[tier]
    if tier == "disk":
        options += ["--cache-folder", str(tmp_path)]
    with chats(drafter, *options) as made:
        length = 120
        opening = [user(PROMPTS[4])]
        first = made.ask(opening, length)
        opening.append(user(PROMPTS[3]))
        made.run(made.runtime.tokenizer.encode(PROMPTS[0] * 3), 30)
        warm = made.ask(list(opening), length)
        assert warm.summary.reuse.origin == tier
        assert warm.summary.cached_tokens >= len(first.request.prompt)
        if drafter == "draft-mtp":
            # The head has an entry for all of the text, and not only for what came after.
            assert head_of(made.engine).length(0) >= len(warm.request.prompt)
        check(oracle, warm)
        made.engine.forget()
        for path in tmp_path.rglob("*.state"):
            path.unlink()
        cold = made.ask(list(opening), length)
        assert cold.summary.cached_tokens == 0
        if drafter != "none":
            print(f"{drafter}, {tier}: {acceptance(warm):.3f} warm, {acceptance(cold):.3f} cold")
            assert acceptance(warm) == pytest.approx(acceptance(cold), abs=0.05)
            assert warm.summary.counts.drafted > 20


def test_a_restart_goes_on_from_the_disk(tmp_path: Path, oracle: LibllamaRuntime) -> None:
    options = ["--cache-disk", "1G", "--cache-folder", str(tmp_path)]
    messages = [user(PROMPTS[0])]
    with chats("draft-mtp", *options) as made:
        first = made.ask(messages)
    messages.append(user(PROMPTS[1]))
    with chats("draft-mtp", *options) as made:
        second = made.ask(messages)
        assert second.summary.reuse.origin == "disk"
        new = len(second.request.prompt) - len(first.request.prompt) - len(first.tokens)
        assert made.absorbed(second) <= new + 8
        check(oracle, second)


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_kept_states_give_bit_equal_logits_on_every_family(family: str) -> None:
    path = random_model(family, FAMILY_FILES)
    settings = LoadSettings(path, slots=2, context_length=256, threads=1, checkpoint_bytes=64 << 20)
    with load(settings) as runtime:
        tokens = [(7919 * (i + 1)) % runtime.vocabulary_size for i in range(40)]
        runtime.decode([Feed(0, tokens, 0, outputs=0)])
        state = runtime.save_state(0)
        assert len(state) == runtime.state_size(0)
        kept = 2 * runtime.slots
        if runtime.checkpoints:
            runtime.fork(0, kept, 0, 40)
        expected = runtime.decode([Feed(0, [7], 40, outputs=1)])[0].copy()
        runtime.drop(0)
        runtime.load_state(0, state)
        assert np.array_equal(runtime.decode([Feed(0, [7], 40, outputs=1)])[0], expected)
        if runtime.checkpoints:
            runtime.drop(0)
            runtime.fork(kept, 0, 0, 40)
            assert np.array_equal(runtime.decode([Feed(0, [7], 40, outputs=1)])[0], expected)


def test_kept_forks_give_their_cells_back_before_a_pass_fails(oracle: LibllamaRuntime) -> None:
    """There are cells for the slot and half a fork; the budget allows for more."""
    settings = LoadSettings(
        models.TARGET, slots=1, context_length=512, threads=1, checkpoint_bytes=1_200_000
    )
    with load(settings) as runtime:
        assert runtime.checkpoints == 1
        assert runtime.plan.cells < 2 * 480
        engine = Engine(runtime, cache=CacheSettings(device=1 << 30, ram=1 << 30))
        text = runtime.tokenizer.encode(" ".join(PROMPTS) * 10)
        for start in (0, 100, 200, 0, 100, 200):
            request = Request(tuple(text[start : start + 470]), GREEDY, max_tokens=10)
            generation = engine.run(request)
            assert generation.error is None
            assert generation.summary.recoveries == 0
            check(oracle, generation)
        assert engine.cache.hits["host"] > 0
        engine.close()
