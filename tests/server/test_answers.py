"""What a whole answer says, and what each request field does to it."""

from typing import Any

import pytest

from surefoot.decoding import Sampling
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.conftest import CONTEXT
from tests.server.running import Running

USER = [{"role": "user", "content": "tell me"}]


def test_a_chat_answer_has_openais_shape(server: Running) -> None:
    answer = server.answer("chat/completions", messages=USER, max_tokens=20, temperature=0)
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "simulated"
    [choice] = answer["choices"]
    assert choice["index"] == 0
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 20
    assert usage["total_tokens"] == usage["prompt_tokens"] + 20


def test_a_completion_has_openais_shape(server: Running) -> None:
    answer = server.answer("completions", prompt="once", max_tokens=5, temperature=0)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    [choice] = answer["choices"]
    assert choice["text"]
    assert choice["finish_reason"] == "length"


def test_ids_are_unique(server: Running) -> None:
    ids = {server.answer("completions", prompt="a", max_tokens=1)["id"] for _ in range(5)}
    assert len(ids) == 5


def test_the_chat_prompt_is_what_the_template_renders(server: Running) -> None:
    parts = [{"type": "text", "text": "tell "}, {"type": "text", "text": "me"}]
    messages = [{"role": "developer", "content": "be kind"}, {"role": "user", "content": parts}]
    chat = server.answer("chat/completions", messages=messages, temperature=0, max_tokens=30)
    prompt = (
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\ntell me<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert chat["choices"][0]["message"]["content"] == server.complete(
        prompt, temperature=0, max_tokens=30
    )


def test_a_prompt_may_be_text_or_tokens_one_or_several(server: Running) -> None:
    tokens = [server.engine.runtime.tokenizer.encode(text) for text in ("once upon", "twice")]
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 20}
    alone = [server.complete(text, **options) for text in ("once upon", "twice")]
    assert server.complete(tokens[0], **options) == alone[0]
    for prompts in (["once upon", "twice"], tokens):
        answer = server.answer("completions", prompt=prompts, **options)
        assert [choice["text"] for choice in answer["choices"]] == alone
        assert [choice["index"] for choice in answer["choices"]] == [0, 1]
        assert answer["usage"]["completion_tokens"] == 40
        assert answer["usage"]["prompt_tokens"] == sum(map(len, tokens))


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": 0.0},
        {"temperature": 3.0},
        {"top_k": 1},
        {"top_p": 0.01},
        {"min_p": 1.0},
        {"seed": 6},
        {"max_tokens": 3},
        {"stop": "be"},
        {"stop": ["xyz", "be"]},
    ],
    ids=str,
)
def test_each_field_changes_the_answer(server: Running, field: dict[str, Any]) -> None:
    base: dict[str, Any] = {"seed": 5, "max_tokens": 40, "temperature": 1.5, "top_k": 0}
    base |= {"top_p": 1.0, "min_p": 0.0}
    plain = server.complete("once", **base)
    assert server.complete("once", **base) == plain
    assert server.complete("once", **{**base, **field}) != plain


def test_top_k_is_off_at_minus_one_as_at_zero(server: Running) -> None:
    request: dict[str, Any] = {"seed": 5, "max_tokens": 40, "temperature": 3.0, "min_p": 0.0}
    all_tokens = server.complete("once", **request, top_k=0)
    assert server.complete("once", **request, top_k=-1) == all_tokens
    assert server.complete("once", **request) != all_tokens


def test_stop_tokens_end_the_answer(server: Running) -> None:
    text = server.complete("once", temperature=0, max_tokens=40)
    token = server.engine.runtime.tokenizer.encode(text)[4]
    answer = server.answer("completions", prompt="once", temperature=0, stop_token_ids=[token])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] <= 5


def test_the_stop_string_is_left_out(server: Running) -> None:
    text = server.complete("once", temperature=0, max_tokens=40)
    stop = text[11:17]
    answer = server.answer("completions", prompt="once", temperature=0, stop=stop)
    assert answer["choices"][0] == {
        "index": 0,
        "text": text[: text.index(stop)],
        "logprobs": None,
        "finish_reason": "stop",
    }


@pytest.mark.parametrize(
    "limit",
    [
        {},
        {"max_tokens": None},
        {"n_predict": -1},
        {"max_tokens": -1},
        {"max_completion_tokens": -1, "n_predict": None},
    ],
    ids=str,
)
def test_without_a_limit_the_answer_may_fill_the_context(
    server: Running, limit: dict[str, int | None]
) -> None:
    ends = set()
    for seed in range(8):
        answer = server.answer("completions", prompt="o", seed=seed, **limit)
        end = answer["choices"][0]["finish_reason"]
        full = answer["usage"]["total_tokens"] == CONTEXT
        assert end == ("length" if full else "stop")
        ends.add(end)
    assert "length" in ends


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_the_limit_has_three_names_and_is_kept_to_the_token(server: Running, name: str) -> None:
    for limit in range(1, 12):
        answer = server.answer("completions", prompt="once", temperature=0, **{name: limit})
        assert answer["usage"]["completion_tokens"] == limit
        text = answer["choices"][0]["text"]
        assert len(server.engine.runtime.tokenizer.encode(text)) == limit


def test_of_two_limits_the_smaller_holds(server: Running) -> None:
    limits = {"max_tokens": 9, "max_completion_tokens": 4, "n_predict": -1, "temperature": 0}
    assert server.answer("completions", prompt="a", **limits)["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_no_limit_is_none_even_where_the_server_has_one(name: str) -> None:
    runtime = SimulatedRuntime(vocabulary_size=512, context_length=64, end_rate=0)
    with Running(runtime, max_tokens=6) as server:
        answer = server.answer("completions", prompt="a", temperature=0, **{name: -1})
        assert answer["usage"]["total_tokens"] == 64


@pytest.mark.parametrize("given", [{}, {"seed": None}, {"seed": -1}], ids=str)
def test_a_fresh_seed_is_reported_and_repeats_the_text(
    server: Running, given: dict[str, Any]
) -> None:
    answers = [
        server.answer("completions", prompt="once", max_tokens=30, **given) for _ in range(3)
    ]
    seeds = [answer["surefoot"]["seed"] for answer in answers]
    assert len(set(seeds)) == 3
    for answer, seed in zip(answers, seeds, strict=True):
        again = server.complete("once", max_tokens=30, seed=seed)
        assert again == answer["choices"][0]["text"]


def test_a_seed_gives_the_same_text_alone_again_and_beside_others(server: Running) -> None:
    request: dict[str, Any] = {"seed": 42, "temperature": 1.5, "max_tokens": 60}
    alone = server.complete("once", **request)
    again = server.complete("once", **request)
    beside = server.answer("completions", prompt=["once", "twice"], **request)
    off = server.complete("once", **request, speculative=False)
    assert again == beside["choices"][0]["text"] == off == alone


def test_the_servers_defaults_hold_where_the_request_is_silent() -> None:
    runtime = SimulatedRuntime(vocabulary_size=512)
    greedy = Sampling(temperature=0.0)
    with Running(runtime, defaults=greedy, seed=7, max_tokens=6) as server:
        answer = server.answer("completions", prompt="once")
        assert answer["surefoot"]["seed"] == 7
        assert answer["usage"]["completion_tokens"] == 6
        assert answer["choices"][0]["text"] == server.complete("once", temperature=0, max_tokens=6)
        assert server.answer("completions", prompt="once", seed=8)["surefoot"]["seed"] == 8


def test_the_figures_add_up(server: Running) -> None:
    answer = server.answer("completions", prompt="once upon", temperature=0, max_tokens=100)
    usage, timings, own = answer["usage"], answer["timings"], answer["surefoot"]
    details = usage["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 0
    assert timings["draft_n_accepted"] == details["accepted_prediction_tokens"]
    assert timings["draft_n"] == sum(details.values())
    assert sum(own["drafted_by_position"]) == timings["draft_n"]
    assert sum(own["accepted_by_position"]) == timings["draft_n_accepted"]
    assert usage["completion_tokens"] == timings["predicted_n"] == 100
    assert own["rounds"] + timings["draft_n_accepted"] == 100
    assert own["passes"] == own["rounds"]
    assert own["mean_length"] == 1 + timings["draft_n_accepted"] / own["rounds"]
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert own["drafter"] == "ngram-simple"
    assert own["speculation_off"] is None


def test_what_the_cache_held_is_told_and_counted_once() -> None:
    with Running(SimulatedRuntime("attention", vocabulary_size=512)) as server:
        prompt = list(range(1, 101))
        first = server.answer("completions", prompt=prompt, max_tokens=5)
        before = server.engine.runtime.passes
        second = server.answer("completions", prompt=prompt, max_tokens=1)
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 99
        assert second["timings"]["prompt_n"] == 1
        assert first["timings"]["prompt_per_second"] > 0
        assert second["timings"]["prompt_per_second"] is None, "nothing was prefilled"
        assert server.engine.runtime.passes == before + 1


def test_speculation_can_be_turned_off_for_one_request(server: Running) -> None:
    request: dict[str, Any] = {"prompt": "once", "temperature": 0, "max_tokens": 80}
    on = server.answer("completions", **request)
    for off in (False, {"n_max": 0}):
        answer = server.answer("completions", **request, speculative=off)
        assert answer["timings"]["draft_n"] == 0
        assert answer["surefoot"]["speculation_off"] == "the request turned it off"
        assert answer["choices"] == on["choices"]
    assert on["timings"]["draft_n"] > 0


def test_n_max_limits_the_drafts_of_one_request(server: Running) -> None:
    request: dict[str, Any] = {"prompt": "once", "temperature": 0, "max_tokens": 80}
    short = server.answer("completions", **request, speculative={"n_max": 2})
    assert len(short["surefoot"]["drafted_by_position"]) == 2
    long = server.answer("completions", **request, speculative={"n_max": 1000})
    assert len(long["surefoot"]["drafted_by_position"]) == server.engine.max_draft
    assert "above the server's 16" in long["surefoot"]["warnings"][0]


@pytest.mark.parametrize(
    ("server_has", "reason"),
    [
        ({}, "the server runs without a drafter"),
        ({"drafter": NgramSimple(size_n=2)}, "the model's memory can't undo rejected tokens"),
    ],
)
def test_why_speculation_is_off_is_said(server_has: dict[str, Any], reason: str) -> None:
    runtime = SimulatedRuntime("recurrent", vocabulary_size=512, can_fork=False)
    with Running(runtime, **server_has) as server:
        answer = server.answer("completions", prompt="once", max_tokens=20)
    assert answer["surefoot"]["speculation_off"] == reason
    assert answer["timings"]["draft_n"] == 0


def test_unknown_fields_are_ignored_and_the_response_says_so(server: Running) -> None:
    answer = server.answer("completions", prompt="a", max_tokens=1, frequencypenalty=1)
    assert answer["surefoot"]["warnings"] == ["unknown field 'frequencypenalty' was ignored"]


def test_what_the_template_cannot_use_is_said(server: Running) -> None:
    answer = server.answer(
        "chat/completions",
        messages=USER,
        max_tokens=1,
        chat_template_kwargs={"enable_thinking": False, "add_generation_prompt": True},
    )
    assert answer["surefoot"]["warnings"] == [
        "chat_template_kwargs: the model's template does not use 'enable_thinking'"
    ]


def test_template_variables_reach_the_template(server: Running) -> None:
    options: dict[str, Any] = {"messages": USER, "max_tokens": 1}
    shorter = server.answer(
        "chat/completions", **options, chat_template_kwargs={"add_generation_prompt": False}
    )
    full = server.answer("chat/completions", **options)
    assert shorter["usage"]["prompt_tokens"] < full["usage"]["prompt_tokens"]
