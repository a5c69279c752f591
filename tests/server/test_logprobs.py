"""Log-probabilities: their shapes, whole and streamed, and that they go with their text."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.running import Running

USER = [{"role": "user", "content": "tell me"}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
WARM: dict[str, Any] = {"temperature": 1.2, "seed": 9, "max_tokens": 24}


def chat(server: Running, **fields: Any) -> dict[str, Any]:
    answer = server.answer("chat/completions", messages=USER, return_token_ids=True, **fields)
    choice: dict[str, Any] = answer["choices"][0]
    return choice


def completion(server: Running, prompt: Any = "once", **fields: Any) -> dict[str, Any]:
    answer = server.answer("completions", prompt=prompt, return_token_ids=True, **fields)
    choice: dict[str, Any] = answer["choices"][0]
    return choice


def decoded(server: Running, ids: list[int]) -> str:
    return b"".join(map(server.engine.runtime.tokenizer.piece, ids)).decode(errors="replace")


def test_a_chat_has_openais_shape_and_the_ids(server: Running) -> None:
    choice = chat(server, **WARM, logprobs=True, top_logprobs=3)
    content = choice["logprobs"]["content"]
    assert choice["logprobs"]["refusal"] is None
    assert [entry["id"] for entry in content] == choice["token_ids"]
    assert b"".join(bytes(e["bytes"]) for e in content).decode() == choice["message"]["content"]
    for entry in content:
        assert set(entry) == {"id", "token", "bytes", "logprob", "top_logprobs"}
        assert entry["token"] == bytes(entry["bytes"]).decode(errors="replace")
        assert entry["logprob"] <= 0
        top = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(top) == 3
        assert top == sorted(top, reverse=True)
        assert entry["logprob"] <= top[0]
        for other in entry["top_logprobs"]:
            assert set(other) == {"id", "token", "bytes", "logprob"}
            if other["id"] == entry["id"]:
                assert other["logprob"] == entry["logprob"]


def test_a_chat_without_top_logprobs_tells_the_tokens_own_alone(server: Running) -> None:
    content = chat(server, **GREEDY, logprobs=True)["logprobs"]["content"]
    assert len(content) == 24
    assert all(entry["top_logprobs"] == [] for entry in content)
    for fields in ({}, {"logprobs": False}, {"logprobs": None}, {"n_probs": 0}):
        assert chat(server, **GREEDY, **fields)["logprobs"] is None


def test_a_completion_has_openais_older_shape(server: Running) -> None:
    choice = completion(server, **{**WARM, "seed": 11}, logprobs=2)
    found = choice["logprobs"]
    assert list(found) == ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    assert "".join(found["tokens"]) == choice["text"]
    for token, value, top, offset in zip(*found.values(), strict=True):
        assert choice["text"][offset:].startswith(token)
        assert top[token] == value  # beyond the two likeliest, if it is none of them
        assert len(top) in (2, 3)
        assert max(top.values()) >= value
    alone = completion(server, **GREEDY, logprobs=0)["logprobs"]
    assert [list(top) for top in alone["top_logprobs"]] == [[token] for token in alone["tokens"]]


def test_n_probs_has_the_newer_shape_on_both_endpoints(server: Running) -> None:
    for choice in (chat(server, **WARM, n_probs=4), completion(server, **WARM, n_probs=4)):
        content = choice["logprobs"]["content"]
        assert [entry["id"] for entry in content] == choice["token_ids"]
        assert all(len(entry["top_logprobs"]) == 4 for entry in content)


def test_the_values_are_the_models_own_whatever_sampling_does_to_them(server: Running) -> None:
    """Case L2: raw values, that no penalty, bias or temperature has touched."""
    plain = completion(server, [300, 301], temperature=0, max_tokens=1, n_probs=20)
    bent = completion(
        server,
        [300, 301],
        temperature=0.3,
        max_tokens=1,
        n_probs=20,
        presence_penalty=2.0,
        repeat_penalty=1.3,
        logit_bias={"300": 5},
        top_k=2,
        seed=1,
    )
    one, other = (choice["logprobs"]["content"][0]["top_logprobs"] for choice in (plain, bent))
    assert one == other
    total = completion(server, [300, 301], temperature=0, max_tokens=1, n_probs=100)
    values = [entry["logprob"] for entry in total["logprobs"]["content"][0]["top_logprobs"]]
    assert 0.5 < sum(map(math.exp, values)) <= 1 + 1e-6


def test_values_after_sampling_are_probabilities_by_other_names(server: Running) -> None:
    fields: dict[str, Any] = {**WARM, "top_k": 3, "min_p": 0, "top_p": 1}
    content = chat(server, **fields, n_probs=10, post_sampling_probs=True)["logprobs"]["content"]
    assert len(content) == 24
    for entry in content:
        assert set(entry) == {"id", "token", "bytes", "prob", "top_probs"}
        assert len(entry["top_probs"]) == 3  # what top_k left
        assert math.isclose(sum(top["prob"] for top in entry["top_probs"]), 1, abs_tol=1e-6)
        assert entry["prob"] == next(
            t["prob"] for t in entry["top_probs"] if t["id"] == entry["id"]
        )
    greedy = chat(server, **GREEDY, n_probs=10, post_sampling_probs=True)["logprobs"]["content"]
    assert [len(entry["top_probs"]) for entry in greedy] == [1] * 24
    assert {entry["prob"] for entry in greedy} == {1.0}


def test_what_json_cannot_hold_is_a_low_number() -> None:
    class Flat(SimulatedRuntime):
        def decode(self, feeds: Any) -> Any:
            found = [np.full_like(rows, -1.0e5) for rows in super().decode(feeds)]
            for rows in found:
                rows[:, 300] = 1.0e5
            return found

    with Running(Flat(vocabulary_size=512)) as flat:
        content = chat(flat, max_tokens=1, logprobs=True, top_logprobs=2)["logprobs"]["content"]
    assert content[0]["top_logprobs"][1]["logprob"] == -9999.0
    assert content[0]["logprob"] == 0


def merged(chunks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What streamed chunks tell of tokens, put together; each chunk is looked at, too."""
    found: dict[str, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            told = choice.get("logprobs") or {}
            found.setdefault("ids", []).extend(choice.get("token_ids", []))
            for name, values in told.items():
                if values is not None:
                    found.setdefault(name, []).extend(values)
    return found


@pytest.mark.parametrize("fields", [{}, {"stop": ["bo", "gu ra"]}], ids=str)
def test_a_streamed_chat_tells_with_each_chunk_what_its_text_is_made_of(
    server: Running, fields: dict[str, Any]
) -> None:
    for seed in range(4):
        wanted = {**fields, "seed": seed, "max_tokens": 60, "logprobs": True, "top_logprobs": 2}
        whole = chat(server, **wanted)
        chunks = server.stream("chat/completions", messages=USER, return_token_ids=True, **wanted)
        told = merged(chunks)
        assert told["content"] == whole["logprobs"]["content"]
        assert told["ids"] == whole["token_ids"]
        shown = covered = b""
        for chunk in chunks[1:-1]:
            [choice] = chunk["choices"]
            shown += choice["delta"].get("content", "").encode()
            covered += b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"])
            if not fields:
                assert covered == shown
            # What may be the beginning of a stop string waits, and may begin inside a token.
            assert shown.startswith(covered) or covered.startswith(shown)


def test_a_streamed_completion_has_offsets_into_the_whole_text(server: Running) -> None:
    for seed in range(6):
        fields: dict[str, Any] = {"prompt": "é", "seed": seed, "temperature": 2.0, "logprobs": 1}
        whole = server.answer("completions", **fields, max_tokens=40)["choices"][0]
        chunks = server.stream("completions", **fields, max_tokens=40)
        told = merged(chunks)
        del told["ids"]
        assert told == whole["logprobs"]


def test_parts_of_a_character_are_told_as_bytes(server: Running) -> None:
    tokenizer = server.engine.runtime.tokenizer
    first, second = tokenizer.encode("é")
    fields = {"logit_bias": {f"{first}": 30}, "temperature": 0, "max_tokens": 8, "n_probs": 1}
    choice = completion(server, "a", **fields)
    content = choice["logprobs"]["content"]
    assert [entry["id"] for entry in content] == choice["token_ids"]
    at = choice["token_ids"].index(second) if second in choice["token_ids"] else None
    assert content[0]["bytes"] == [0xC3]
    assert content[0]["token"] == "�"
    if at is not None:
        assert content[at]["bytes"] == [0xA9]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_stop_string_cuts_ids_and_values_with_the_text(server: Running, stream: bool) -> None:
    """Case E6: as many values as ids, and the ids cover exactly the text that is kept."""
    full = server.complete("once", **GREEDY)
    tokenizer = server.engine.runtime.tokenizer
    ends = np.cumsum([len(tokenizer.piece(token)) for token in tokenizer.encode(full)])
    for start in range(2, 40):
        stop = full[start : start + 5]
        request: dict[str, Any] = {**GREEDY, "stop": stop, "logprobs": 1}
        if stream:
            chunks = server.stream("completions", prompt="once", return_token_ids=True, **request)
            text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
            told = merged(chunks)
            ids, values = told["ids"], told["token_logprobs"]
        else:
            choice = completion(server, **request)
            text, ids = choice["text"], choice["token_ids"]
            values = choice["logprobs"]["token_logprobs"]
        assert text == full[: full.index(stop)]
        assert len(ids) == len(values)
        needed = int(np.searchsorted(ends, len(text)) + 1) if text else 0
        assert len(ids) == needed, (stop, text)
        assert decoded(server, ids).startswith(text)


@pytest.mark.parametrize("speculative", [True, False])
def test_drafts_change_no_value(server: Running, speculative: bool) -> None:
    request: dict[str, Any] = {**GREEDY, "max_tokens": 80, "n_probs": 3}
    told = completion(server, **request, speculative=speculative)["logprobs"]
    assert told == completion(server, **request)["logprobs"]


@pytest.fixture
def echoing() -> Iterator[Running]:
    with Running(SimulatedRuntime(vocabulary_size=512, slots=2, context_length=256)) as server:
        yield server


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("n", [1, 2])
def test_an_echo_has_the_prompts_values_but_for_the_first_token(
    echoing: Running, stream: bool, n: int
) -> None:
    prompt = "once upon a time"
    fields: dict[str, Any] = {**WARM, "n": n, "echo": True, "logprobs": 1, "return_token_ids": True}
    length = len(echoing.engine.runtime.tokenizer.encode(prompt))
    chunks = (
        echoing.stream("completions", prompt=prompt, **fields)
        if stream
        else [echoing.answer("completions", prompt=prompt, **fields)]
    )
    for index in range(n):
        own = [
            {**chunk, "choices": [choice]}
            for chunk in chunks
            for choice in chunk["choices"]
            if choice["index"] == index
        ]
        told = merged(own)
        text = "".join(chunk["choices"][0]["text"] for chunk in own)
        assert text.startswith(prompt)
        assert "".join(told["tokens"]) == text
        assert len(told["ids"]) == len(told["token_logprobs"]) == length + 24
        assert told["token_logprobs"][0] is None
        assert told["top_logprobs"][0] is None
        assert all(value <= 0 for value in told["token_logprobs"][1:])
        assert told["text_offset"] == sorted(told["text_offset"])
        assert all(
            text[at:].startswith(token)
            for at, token in zip(told["text_offset"], told["tokens"], strict=True)
        )


def test_the_echoed_values_are_those_that_generating_the_prompt_had(echoing: Running) -> None:
    answer = completion(echoing, **GREEDY, logprobs=0)
    prompt = "once" + answer["text"]
    echo = completion(echoing, prompt, temperature=0, max_tokens=1, logprobs=0, echo=True)
    start = len(echoing.engine.runtime.tokenizer.encode("once"))
    again = echo["logprobs"]["token_logprobs"][start : start + 24]
    assert again == pytest.approx(answer["logprobs"]["token_logprobs"], abs=1e-5)


def test_an_echo_without_values_is_the_prompt_and_the_text(server: Running) -> None:
    text = server.complete("once", **GREEDY)
    assert server.complete("once", **GREEDY, echo=True) == "once" + text
    chunks = server.stream("completions", prompt="once", **GREEDY, echo=True)
    assert chunks[0]["choices"][0]["text"] == "once"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "once" + text


WRONG = [
    ("chat/completions", "top_logprobs", {"top_logprobs": 2}),
    ("chat/completions", "top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("chat/completions", "top_logprobs", {"logprobs": True, "top_logprobs": -1}),
    ("chat/completions", "logprobs", {"logprobs": 3}),
    ("completions", "logprobs", {"logprobs": -1}),
    ("completions", "logprobs", {"logprobs": 101}),
    ("completions", "logprobs", {"logprobs": "x"}),
    ("completions", "top_logprobs", {"top_logprobs": 2}),
    ("completions", "echo", {"echo": "yes"}),
]


@pytest.mark.parametrize(("path", "field", "fields"), WRONG, ids=str)
def test_wrong_wishes_are_refused_by_name(
    server: Running, path: str, field: str, fields: dict[str, Any]
) -> None:
    base = {"messages": USER} if path.startswith("chat") else {"prompt": "a"}
    response = server.post(path, {**base, **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == field
