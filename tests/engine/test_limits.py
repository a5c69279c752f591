"""Where requests end: token limits, the context's end, and prompts that leave no room (theme E)."""

import pytest

from surefoot.decoding import InvalidParameterError, Sampling
from surefoot.engine import Delta, GenerationState, PromptTooLongError, Request
from tests.engine.playing import ALL_KINDS, Asker, engine_of, run_all

CONTEXT = 64
PROMPT = [300, 301, 302]


def prompt_of(length: int) -> list[int]:
    return [256 + number % 200 for number in range(length)]


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1, 10 * CONTEXT])
def test_a_prompt_as_long_as_the_context_is_refused_in_words(length: int) -> None:
    engine, runtime = engine_of("hybrid", context_length=CONTEXT)
    with pytest.raises(PromptTooLongError, match=f"{length} tokens .* holds 64") as error:
        engine.submit(Request(tuple(prompt_of(length))), lambda _: None)
    assert "-c" in str(error.value)
    assert engine.idle
    assert runtime.calls == 0


def test_a_bias_for_a_token_that_is_none_is_refused_and_nothing_is_queued() -> None:
    engine, runtime = engine_of("hybrid", context_length=CONTEXT)
    sampling = Sampling(logit_bias=((runtime.vocabulary_size, 1.0),))
    with pytest.raises(InvalidParameterError, match=r"logit_bias: there is no token \d+"):
        engine.submit(Request((1, 2), sampling), lambda _: None)
    assert engine.idle


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("room", [1, 2, 3, 7])
@pytest.mark.parametrize("max_tokens", [None, 100])
def test_a_text_ends_with_the_context(kind: str, room: int, max_tokens: int | None) -> None:
    """To the token, in whatever draft the end falls; by rule, never by a pass that fails."""
    asker = Asker(kind, length=20)
    prompt = prompt_of(CONTEXT - room)
    engine, _ = engine_of(kind, asker.drafter([prompt], lambda _: True), context_length=CONTEXT)
    generation = engine.run(asker.request(prompt, max_tokens=max_tokens))
    assert generation.tokens == asker.says(prompt)[:room]
    assert generation.finish == ("length", "context full")
    assert generation.state is GenerationState.FINISHED
    assert generation.summary.recoveries == 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_all_slots_can_fill_their_contexts_at_once(kind: str) -> None:
    asker = Asker(kind, length=70)
    prompts = [[300 + number] for number in range(3)]
    engine, runtime = engine_of(kind, asker.drafter(prompts), slots=3, context_length=CONTEXT)
    for generation in run_all(engine, [asker.request(prompt) for prompt in prompts]):
        assert generation.tokens == asker.says(generation.request.prompt)[: CONTEXT - 1]
        assert generation.finish == ("length", "context full")
    assert runtime.calls == runtime.passes


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("right", [True, False], ids=["all right", "all wrong"])
def test_as_many_tokens_come_as_were_asked_for(kind: str, right: bool) -> None:
    """Cases E7 and E9: delivered, counted and asked for are one number."""
    asker = Asker(kind)
    engine, _ = engine_of(kind, asker.drafter([PROMPT], lambda _: right), max_draft=4)
    for most in range(1, 21):
        engine.forget()
        deltas: list[Delta] = []
        generation = engine.run(asker.request(PROMPT, max_tokens=most), deltas.append)
        delivered = [token for delta in deltas for token in delta.tokens]
        assert delivered == asker.says(PROMPT)[:most]
        assert generation.summary.generated_tokens == len(generation.tokens) == most
        assert generation.finish == ("length", "max tokens")
        counts = generation.summary.counts
        assert counts.accepted + counts.rounds == most
        if most == 1:
            assert counts.drafted == 0
        if right and kind != "rigid":
            assert counts.rounds == -(-most // 5)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_text_ends_at_its_end_token_wherever_drafts_cross_it(kind: str) -> None:
    """Cases E1 and E2: at every alignment; what lies behind the end is neither told nor counted."""
    asker = Asker(kind)
    text = asker.says(PROMPT)
    for at in (index for index in range(12) if text[index] not in text[:index]):
        engine, _ = engine_of(kind, asker.drafter([PROMPT], lambda _: True))
        stop = frozenset({text[at]})
        generation = engine.run(asker.request(PROMPT, stop_tokens=stop))
        assert generation.tokens == text[: at + 1]
        assert generation.finish == ("stop", "stop token")
        # Each round brings four draft tokens and one of the target's own, as far as it gets.
        own = (at + 1) // 5 if kind != "rigid" else at + 1
        assert generation.summary.counts.accepted == at + 1 - own


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"prompt": ()}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stops": ("",)}, "stop"),
        ({"max_draft": -1}, "max_draft"),
    ],
)
def test_impossible_requests_are_refused_in_words(fields: dict[str, object], name: str) -> None:
    wanted: dict[str, object] = {"prompt": (300,), **fields}
    with pytest.raises(InvalidParameterError, match=f"^{name}: .*must"):
        Request(**wanted)  # type: ignore[arg-type]
