"""A request begins with the longest state that fits, on every kind of memory (themes A and B).

All of it is asserted on the runtime's count of evaluated tokens (case B14); what the engine says of
itself is compared with that in `Bench.turn`.
"""

import random
from typing import Any

import pytest

from surefoot.decoding import MAX_PENDING
from tests.engine.cache.bench import (
    DEPTH,
    FORKING,
    KINDS_WITH_FORKS,
    LONG,
    NEW,
    PROMPT,
    Bench,
)
from tests.engine.playing import ALL_KINDS, play

SLACK = MAX_PENDING + DEPTH


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_same_prompt_again_evaluates_one_token_of_it(kind: str) -> None:
    """Case A10, no tail: the state at the prompt's end is there, and the first token is right."""
    bench = Bench(kind)
    bench.turn(PROMPT)
    assert [bench.turn(PROMPT).absorbed for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_tail_of_one_token_behind_a_state_is_right(kind: str) -> None:
    """Case A10, tail 1: one more token than the state at the prompt's end holds."""
    bench = Bench(kind)
    answer = bench.turn(PROMPT).generation.tokens
    longer = bench.turn([*PROMPT, answer[0]])
    assert longer.absorbed <= 2
    if kind != "rigid":
        assert bench.turn([*PROMPT, 417]).absorbed <= 2


@pytest.mark.parametrize("kind", FORKING)
@pytest.mark.parametrize("back", [1, 2, 3, 5])
def test_a_history_without_its_tail_goes_on_from_a_state_before_it(kind: str, back: int) -> None:
    """Case A8: whatever the last round left to be rolled back."""
    bench = Bench(kind, drafts=[PROMPT])
    first = bench.turn(PROMPT, draft=True)
    second = bench.turn([*first.history[:-back], *NEW])
    assert second.reused >= len(PROMPT) - 1
    assert second.absorbed <= 24 + len(NEW) + 1


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_edit_late_in_a_long_history_costs_no_more_than_the_spacing(kind: str) -> None:
    """Case B1."""
    spacing = 256
    bench = Bench(kind, every=spacing, context_length=8192)
    bench.turn(LONG)
    edited = [*LONG[:3900], 417, *LONG[3901:]]
    assert bench.turn(edited).absorbed <= 100 + spacing


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_wherever_a_history_is_edited_no_more_than_the_spacing_is_absorbed_again(kind: str) -> None:
    """Case B6, as a property; the history is prompt and a long answer."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    spacing = 64
    bench = Bench(kind, length=300, every=spacing, checkpoints=24)
    history = bench.turn(LONG[:500]).history
    for _ in range(8):
        edit = draw.randint(1, len(history) - 2)
        prompt = [*history[:edit], (history[edit] + 1) % 512, *NEW]
        turn = bench.turn(prompt, max_tokens=3)
        assert turn.absorbed <= spacing + 1 + len(NEW), f"edit at {edit}: {turn.reason}"


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_template_that_drops_old_reasoning_goes_back_to_the_last_users_message(kind: str) -> None:
    """Case B5: what the answer began with is missing from the next prompt."""
    bench = Bench(kind)
    system = LONG[:40]
    user = [*system, *LONG[40:60]]
    prompt = [*user, 280, 281, 282]
    starts: dict[str, Any] = {"message_starts": (40,), "turn_start": 40}
    answer = bench.turn(prompt, **starts).generation.tokens
    without = [*user, 280, *answer[10:], *NEW]
    second = bench.turn(without, message_starts=(40,), turn_start=len(without) - 2)
    assert second.reused >= 40


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_branches_are_kept_apart(kind: str) -> None:
    """Case B3: branch A, branch B, then A again, and nothing of B is used for A."""
    bench = Bench(kind)
    history = bench.turn(PROMPT).history
    one = bench.turn([*history, 400, 401])
    other = bench.turn([*history, 410, 411])
    assert other.absorbed <= 3
    again = bench.turn([*one.history, *NEW])
    assert again.absorbed <= len(NEW) + 1
    assert bench.turn([*other.history, *NEW]).absorbed <= len(NEW) + 1


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_no_state_is_kept_twice(kind: str) -> None:
    """Case B3: a turn of few new tokens keeps nothing that is there already."""
    bench = Bench(kind)
    bench.turn(PROMPT)
    held = bench.tier("device")["entries"] + bench.tier("host")["entries"]
    for _ in range(3):
        bench.turn(PROMPT)
    assert bench.tier("device")["entries"] + bench.tier("host")["entries"] == held


@pytest.mark.parametrize("kind", FORKING)
@pytest.mark.parametrize("draft", [False, True], ids=["plain", "drafts"])
def test_conversations_in_turn_on_one_slot_are_each_reused(kind: str, draft: bool) -> None:
    """Case B10 too: as much with speculation as without, but for what was pending."""
    histories = [LONG[start : start + 60] for start in (0, 100, 200)]
    bench = Bench(kind, drafts=histories)
    for _ in range(4):
        for number, history in enumerate(histories):
            turn = bench.turn([*history, *NEW], draft=draft)
            if turn.generation.summary.cached_tokens:
                least = len(history) - 1 - (SLACK if draft else 0)
                assert turn.generation.summary.cached_tokens >= least
                assert turn.origin in ("slot", "device")
            histories[number] = turn.history
    hits = bench.engine.cache.describe()["hits"]
    assert sum(hits.values()) == 9


@pytest.mark.parametrize("kind", FORKING)
def test_a_busy_slots_prompt_is_shared_where_that_is_possible(kind: str) -> None:
    bench = Bench(kind, slots=2, length=60)
    first = bench.engine.submit(bench.asker.request(LONG[:80], max_draft=0), lambda _: None)
    for _ in range(4):
        bench.engine.step()
    assert first.sequence is not None
    absorbed = first.sequence.committed[: first.sequence.state_len]
    second = bench.engine.submit(
        bench.asker.request([*absorbed, *NEW], max_draft=0), lambda _: None
    )
    play(bench.engine)
    assert first.tokens == bench.asker.says(LONG[:80])
    assert second.tokens == bench.asker.says([*absorbed, *NEW])
    assert second.summary.cached_tokens == len(absorbed)
    assert second.summary.reuse.origin == "slot"


@pytest.mark.parametrize("kind", [kind for kind in KINDS_WITH_FORKS if kind != "windowed"])
def test_why_not_more_was_reused_is_said_in_plain_words(kind: str) -> None:
    """Case B7."""
    bench = Bench(kind, every=32)
    assert bench.turn(LONG[:100]).reason == "no text that is held begins like this prompt"
    history = bench.turn(LONG[:100]).history
    edited = [*history[:50], 417, *history[51:]]
    turn = bench.turn(edited)
    assert turn.reason == (
        "the history differs at token 50; the nearest checkpoint before it is at 32"
    )
    assert turn.reused == 32
    following = bench.turn([*history, *NEW])
    assert following.reason == (
        f"no text that is held goes on like this prompt behind token {following.reused}"
    )
    before = bench.turn([*history[:20], 417])
    assert before.reason == ("the history differs at token 20; there is no checkpoint before it")
    for reason in (turn.reason, following.reason, before.reason):
        for word in ("window", "SWA", "recurrent", "hybrid"):
            assert word not in reason


@pytest.mark.parametrize("kind", ["attention", "windowed"])
def test_a_refused_cut_leaves_the_kept_states_and_the_next_request_restores(kind: str) -> None:
    """Case B9: the slot's own way back and each fork's are refused at first."""
    refusing = [False]
    bench = Bench(kind, refuse_cut=lambda _: refusing[0])
    first = bench.turn(PROMPT)
    entries = bench.tier("device")["entries"]
    refusing[0] = True
    prompt = [*first.history[:-4], *NEW]
    second = bench.turn(prompt)
    assert second.reused == (0 if kind == "attention" else len(PROMPT) - 1)
    assert second.reused or second.reason == "a state that was to be reused could not be restored"
    assert bench.tier("device")["entries"] >= entries
    refusing[0] = False
    assert bench.turn([*first.history, *NEW]).absorbed <= len(NEW) + 1


@pytest.mark.parametrize("kind", KINDS_WITH_FORKS)
def test_a_refused_way_back_of_the_slot_is_made_good_by_a_kept_state(kind: str) -> None:
    """Case B9, on memory that goes back by forks: the list survives, and is used."""
    bench = Bench(kind, drafts=[PROMPT], refuse_cut=0.5)
    history = bench.turn(PROMPT, draft=True).history
    assert bench.turn([*history[:-3], *NEW]).reused >= len(PROMPT) - 1
    assert bench.turn(PROMPT).absorbed <= len(PROMPT)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_ten_turns_evaluate_what_is_new_and_a_few_tokens_more(kind: str) -> None:
    bench = Bench(kind)
    history = LONG[:30]
    for number in range(10):
        prompt = [*history, *LONG[100 + number : 108 + number]]
        turn = bench.turn(prompt, turn_start=len(history))
        if number:
            assert turn.absorbed <= 8 + 8
        history = turn.history
