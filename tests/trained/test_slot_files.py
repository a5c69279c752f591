"""Saved slots of the embedded hybrid: nothing is absorbed again, and drafters go on as before."""

from pathlib import Path

import pytest

from surefoot.engine.slot_actions import Direct, SlotError, SlotOrder, carry_out
from surefoot.runtime.libllama import LibllamaRuntime
from tests.support.acceptance_prompts import PROMPTS
from tests.support.quantized import four_bits
from tests.trained.test_prompt_cache import (
    WITH_MODELS,
    acceptance,
    chats,
    check,
    head_of,
    oracle,
    user,
)

__all__ = ["oracle"]


@pytest.mark.parametrize("drafter", ["none", "ngram-simple", *WITH_MODELS])
def test_a_restored_slot_goes_on_without_absorbing_and_is_drafted_for_as_before(
    drafter: str,
    tmp_path: Path,
    oracle: LibllamaRuntime,
) -> None:
    """Cases M3 and M4."""
    order = SlotOrder("save", 0, str(tmp_path / "chat"))
    with chats(drafter) as made:
        messages = [user(PROMPTS[0])]
        first = made.ask(messages, 60)
        carry_out(Direct(made.engine), order)
        prompt = [*first.request.prompt, *first.tokens, *made.runtime.tokenizer.encode(" it")]
        same = made.run(prompt, 80)
    with chats(drafter, "--cache-device", "0", "--cache-ram", "0") as made:
        restored = carry_out(Direct(made.engine), SlotOrder("restore", 0, order.path))
        again = made.run(prompt, 80)
        if drafter == "draft-mtp":
            # The head has an entry for all of the text, and not only for what came after.
            assert head_of(made.engine).length(0) >= len(prompt)
        assert made.absorbed(again) <= 8
        assert again.summary.cached_tokens >= restored.tokens - 4
        check(oracle, again)
    if drafter in WITH_MODELS:
        assert acceptance(again) >= acceptance(same) - 0.1


def test_checkpoints_come_back_with_the_slot(tmp_path: Path) -> None:
    order = SlotOrder("save", 0, str(tmp_path / "chat"))
    long = " ".join(PROMPTS)
    with chats("none", "--checkpoint-every", "128") as made:
        made.ask([user(long), {"role": "assistant", "content": "Yes."}, user("Go on.")], 8)
        carry_out(Direct(made.engine), order)
    with chats("none", "--checkpoint-every", "128") as made:
        carry_out(Direct(made.engine), SlotOrder("restore", 0, order.path))
        messages = [user(long), {"role": "assistant", "content": "Yes."}, user("Stop, please.")]
        changed = made.ask(messages, 8)
        assert made.absorbed(changed) <= 128 < len(changed.request.prompt)


def test_another_quantization_and_another_kind_of_memory_are_refused_by_name(
    tmp_path: Path,
) -> None:
    """Case M5."""
    order = SlotOrder("save", 0, str(tmp_path / "chat"))
    with chats() as made:
        made.ask([user(PROMPTS[0])], 8)
        carry_out(Direct(made.engine), order)
    q4 = str(four_bits(tmp_path))
    for options in (["-m", q4], ["-ctk", "q8_0", "-ctv", "q8_0"]):
        with chats("none", *options) as made:
            held = made.ask([user(PROMPTS[1])], 8)
            with pytest.raises(SlotError, match=r"it is a slot of .* and this is"):
                carry_out(Direct(made.engine), SlotOrder("restore", 0, order.path))
            text = [*held.request.prompt, *held.tokens, 5]
            assert made.run(text, 2).summary.cached_tokens >= len(held.request.prompt)
