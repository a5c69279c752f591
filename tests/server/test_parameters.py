"""Every parameter has its effect, on both endpoints, and the same with drafts and without."""

import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.running import Running

BASE: dict[str, Any] = {"seed": 3, "temperature": 1.0, "max_tokens": 24, "top_k": 0, "top_p": 1.0,
                        "min_p": 0.0}  # fmt: skip
PROMPT = "ba be bi ba be bi ba be"

CHANGING: dict[str, Any] = {
    "temperature": 0.2,
    "dynatemp_range": 0.9,
    "top_k": 2,
    "top_p": 0.3,
    "min_p": 0.6,
    "typical_p": 0.2,
    "top_n_sigma": 0.5,
    "mirostat": 2,
    "logit_bias": [["a", 12.0]],
    "seed": 4,
    "max_tokens": 5,
    "stop": "a",
    "regex": "[0-9]{3}",
    "choice": ["one", "two"],
    "grammar": 'root ::= "x" [0-9]{2}',
    "json_schema": {"type": "integer", "minimum": 100, "maximum": 999},
    "response_format": {"type": "json_object"},
    "verify": "rejection",
}
"""A value for each parameter with which the text is another. Some need another one beside it."""

FEW = {"logit_bias": [["a", 40], ["b", 40], ["c", 40], ["d", 38]]}
"""Leaves four tokens, so that a text repeats itself."""

BESIDE: dict[str, dict[str, Any]] = {
    "dynatemp_exponent": {"dynatemp_range": 0.9},
    "min_keep": {"min_p": 1.0},
    "xtc_probability": FEW,
    "xtc_threshold": {"xtc_probability": 1.0, **FEW},
    "repeat_penalty": FEW,
    "repetition_penalty": FEW,
    "presence_penalty": FEW,
    "frequency_penalty": FEW,
    "repeat_last_n": {"frequency_penalty": 3.0, **FEW},
    "dry_multiplier": FEW,
    "dry_base": {"dry_multiplier": 0.1, **FEW},
    "dry_allowed_length": {"dry_multiplier": 8.0, **FEW},
    "dry_penalty_last_n": {"dry_multiplier": 8.0, **FEW},
    "dry_sequence_breakers": {"dry_multiplier": 8.0, **FEW},
    "mirostat_tau": {"mirostat": 2},
    "mirostat_eta": {"mirostat": 2},
    "samplers": {"top_k": 2, "temperature": 0.4},
}
"""For some parameters others without which they have no effect."""

WITH: dict[str, Any] = {
    "dynatemp_exponent": 9.0,
    "min_keep": 60,
    "xtc_probability": 1.0,
    "xtc_threshold": 0.4,
    "repeat_penalty": 1.5,
    "repetition_penalty": 1.5,
    "presence_penalty": 20.0,
    "frequency_penalty": 5.0,
    "repeat_last_n": 1,
    "dry_multiplier": 8.0,
    "dry_base": 40.0,
    "dry_allowed_length": 30,
    "dry_penalty_last_n": 1,
    "dry_sequence_breakers": ["a", "b", "c"],
    "mirostat_tau": 0.1,
    "mirostat_eta": 0.9,
    "samplers": "t",
}


def running(drafting: bool) -> Running:
    runtime = SimulatedRuntime(vocabulary_size=512, slots=4, seed=2, end_rate=1 / 40)
    drafter = NgramSimple(size_n=2, size_m=6, min_hits=1) if drafting else None
    return Running(runtime, drafter)


@pytest.fixture(scope="module")
def drafting() -> Iterator[Running]:
    with running(True) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    with running(False) as server:
        yield server


def text(server: Running, **body: Any) -> str:
    answer = server.answer("completions", prompt=PROMPT, **{**BASE, **body})
    assert answer["surefoot"]["warnings"] == []
    return str(answer["choices"][0]["text"])


@pytest.mark.parametrize("name", CHANGING)
def test_a_parameter_changes_the_text_and_drafts_do_not(
    drafting: Running, plain: Running, name: str
) -> None:
    """Cases H1 and H2."""
    body = {name: CHANGING[name]}
    if name == "verify":
        assert text(plain, **body) == text(plain, **body)
        return
    assert text(plain, **body) != text(plain)
    assert text(drafting, **body) == text(plain, **body)


@pytest.mark.parametrize("name", WITH)
def test_a_parameter_of_another_changes_the_text_and_drafts_do_not(
    drafting: Running, plain: Running, name: str
) -> None:
    body = {**BESIDE[name], name: WITH[name]}
    assert text(plain, **body) != text(plain, **BESIDE[name])
    assert text(drafting, **body) == text(plain, **body)


@pytest.mark.parametrize("most", [3, 10])
def test_no_end_before_min_tokens(drafting: Running, plain: Running, most: int) -> None:
    """Case H1: end tokens are allowed from the token behind them on."""
    [end] = plain.engine.runtime.tokenizer.end_of_generation
    body = {"logit_bias": {str(end): 50}, "min_tokens": most}
    for server in (drafting, plain):
        answer = server.answer("completions", prompt=PROMPT, **BASE, **body)
        assert answer["usage"]["completion_tokens"] == most + 1
        assert answer["choices"][0]["finish_reason"] == "stop"
        longer = server.answer("completions", prompt=PROMPT, **BASE, **body, ignore_eos=True)
        assert longer["choices"][0]["finish_reason"] == "length"


def test_a_banned_token_is_never_said_and_a_favoured_one_always(
    drafting: Running, plain: Running
) -> None:
    """Case H4."""
    tokenizer = plain.engine.runtime.tokenizer
    [token] = tokenizer.encode("q")
    for server in (drafting, plain):
        assert text(server, logit_bias={str(token): 100}, ignore_eos=True) == "q" * 24
        answer = server.answer(
            "completions", prompt=PROMPT, **{**BASE, "temperature": 0}, return_token_ids=True
        )
        [first, *_] = answer["choices"][0]["token_ids"]
        body = {**BASE, "temperature": 0, "logit_bias": [[first, False]], "return_token_ids": True}
        answer = server.answer("completions", prompt=PROMPT, **body)
        assert first not in answer["choices"][0]["token_ids"]


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_the_same_with_drafts(
    drafting: Running, plain: Running, path: str, stream: bool
) -> None:
    """Case L1."""
    asked: dict[str, Any] = {"n_probs": 3, "stop": "zz"}
    asked |= (
        {"prompt": PROMPT}
        if path == "completions"
        else {"messages": [{"role": "user", "content": PROMPT}]}
    )
    found = []
    for server in (drafting, plain):
        body = {**BASE, **asked}
        if stream:
            chunks = server.stream(path, **body)
            parts = [c["choices"][0]["logprobs"] for c in chunks if c["choices"]]
            content = [entry for part in parts if part for entry in part["content"]]
        else:
            content = server.answer(path, **body)["choices"][0]["logprobs"]["content"]
        found.append(content)
        for entry in content:
            assert len(entry["top_logprobs"]) == 3
            assert sum(math.exp(top["logprob"]) for top in entry["top_logprobs"]) <= 1 + 1e-9
            assert entry["logprob"] <= entry["top_logprobs"][0]["logprob"] + 1e-9
    one, other = found
    assert [entry["id"] for entry in one] == [entry["id"] for entry in other]
    for mine, theirs in zip(one, other, strict=True):
        assert mine["logprob"] == pytest.approx(theirs["logprob"], abs=1e-3)


def test_raw_log_probabilities_know_no_penalty(plain: Running) -> None:
    """Case L2."""
    body = {**BASE, "temperature": 0, "max_tokens": 1, "n_probs": 5, "prompt": PROMPT}

    def top(**extra: Any) -> Any:
        answer = plain.answer("completions", **{**body, **extra})
        return answer["choices"][0]["logprobs"]["content"][0]

    assert top(repeat_penalty=1.3)["top_logprobs"] == top()["top_logprobs"]
    processed = top(post_sampling_probs=True, top_k=2, temperature=1.0)
    assert len(processed["top_probs"]) == 2
    assert sum(entry["prob"] for entry in processed["top_probs"]) == pytest.approx(1.0)


def test_a_stop_string_trims_ids_and_log_probabilities_as_it_does_the_text(
    drafting: Running, plain: Running
) -> None:
    """Case E6."""
    whole = text(plain, temperature=0)
    stop = whole[8:12]
    for server in (drafting, plain):
        body = {"temperature": 0, "stop": stop, "logprobs": 0, "return_token_ids": True}
        answer = server.answer("completions", prompt=PROMPT, **{**BASE, **body})
        [choice] = answer["choices"]
        tokens = choice["logprobs"]["tokens"]
        kept = choice["text"]
        assert kept == whole[: whole.index(stop)]
        assert len(choice["token_ids"]) == len(tokens) == len(choice["logprobs"]["token_logprobs"])
        assert "".join(tokens).startswith(kept)
        assert "".join(tokens[:-1]) != "".join(tokens) == kept or len("".join(tokens[:-1])) < len(
            kept
        )


def test_echo_gives_the_prompt_back_with_its_log_probabilities(plain: Running) -> None:
    body = {**BASE, "echo": True, "logprobs": 1, "max_tokens": 2}
    [choice] = plain.answer("completions", prompt=PROMPT, **body)["choices"]
    assert choice["text"].startswith(PROMPT)
    values = choice["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert all(value < 0 for value in values[1:])
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    offsets = choice["logprobs"]["text_offset"]
    assert all(choice["text"][at:].startswith(t) for at, t in
               zip(offsets, choice["logprobs"]["tokens"], strict=True))  # fmt: skip


def test_n_choices_have_seeds_in_a_row(plain: Running) -> None:
    answer = plain.answer("completions", prompt=PROMPT, n=3, **BASE)
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts == [text(plain, seed=BASE["seed"] + number) for number in range(3)]
    one = plain.answer("completions", prompt=PROMPT, **BASE)
    assert answer["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]


def test_best_of_gives_the_likeliest_by_token(plain: Running) -> None:
    texts = plain.answer("completions", prompt=PROMPT, n=4, logprobs=0, **BASE)["choices"]
    means = [sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
             for c in texts]  # fmt: skip
    best = plain.answer("completions", prompt=PROMPT, best_of=4, **BASE)["choices"]
    assert [choice["text"] for choice in best] == [texts[means.index(max(means))]["text"]]


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repeat_penalty", 0.0),
        ("mirostat", 3),
        ("samplers", "qq"),
        ("samplers", ["magic"]),
        ("dry_base", 0.5),
        ("logit_bias", {"99999": 1}),
        ("logit_bias", [[1]]),
        ("logit_bias", [[1, True]]),
        ("n", 9),
        ("n", 0),
        ("best_of", 9),
        ("n_probs", 1000),
        ("typical_p", 0),
        ("xtc_probability", 2),
        ("exact", "strict"),
        ("exact", "very"),
        ("verify", "never"),
        ("regex", "["),
        ("json_schema", {"type": "strange"}),
        ("post_sampling_probs", True),
        ("json_schema", nested(300)),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(plain: Running, field: str, value: Any) -> None:
    response = plain.post("completions", {"prompt": "a", field: value})
    assert response.status_code == 400, response.text
    assert field in response.json()["error"]["message"] or field in ("best_of", "n_probs")


def test_rejection_and_mirostat_are_refused_together(plain: Running) -> None:
    response = plain.post("completions", {"prompt": "a", "verify": "rejection", "mirostat": 2})
    assert response.status_code == 400
    assert "mirostat" in response.json()["error"]["message"]


def test_two_grammars_at_once_are_refused(plain: Running) -> None:
    response = plain.post("completions", {"prompt": "a", "regex": "a", "choice": ["b"]})
    assert response.status_code == 400
    assert "together" in response.json()["error"]["message"]


def test_metrics_count_requests(plain: Running) -> None:
    text(plain)
    body = httpx.get(f"{plain.url}/metrics").text
    assert 'surefoot_requests_total{state="finished"}' in body
