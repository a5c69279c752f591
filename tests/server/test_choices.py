"""Several choices for one prompt, and the best of several."""

from typing import Any

import pytest

from tests.server.running import Running

USER = [{"role": "user", "content": "tell me"}]
BODIES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "once"},
    "chat/completions": {"messages": USER},
}


def text_of(choice: dict[str, Any]) -> str:
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


@pytest.mark.parametrize("path", BODIES)
def test_n_choices_are_those_of_n_seeds_in_a_row(server: Running, path: str) -> None:
    request: dict[str, Any] = {**BODIES[path], "temperature": 1.5, "max_tokens": 30}
    both = server.answer(path, **request, seed=70, n=2)
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    alone = [server.answer(path, **request, seed=seed) for seed in (70, 71)]
    assert [text_of(choice) for choice in both["choices"]] == [
        text_of(answer["choices"][0]) for answer in alone
    ]
    assert text_of(both["choices"][0]) != text_of(both["choices"][1])
    usage = both["usage"]
    assert usage["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]
    assert usage["completion_tokens"] == 60


@pytest.mark.parametrize("path", BODIES)
def test_n_choices_stream_under_their_numbers(server: Running, path: str) -> None:
    request: dict[str, Any] = {**BODIES[path], "seed": 3, "max_tokens": 30, "n": 2}
    whole = server.answer(path, **request)
    texts = ["", ""]
    for chunk in server.stream(path, **request):
        for choice in chunk["choices"]:
            piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            texts[choice["index"]] += piece
    assert texts == [text_of(choice) for choice in whole["choices"]]


def test_choices_of_several_prompts_come_prompt_by_prompt(server: Running) -> None:
    request: dict[str, Any] = {"seed": 3, "max_tokens": 20}
    all_of_them = server.answer("completions", prompt=["once", "twice"], n=2, **request)["choices"]
    assert [choice["index"] for choice in all_of_them] == [0, 1, 2, 3]
    for start, prompt in ((0, "once"), (2, "twice")):
        alone = server.answer("completions", prompt=prompt, n=2, **request)["choices"]
        assert [c["text"] for c in all_of_them[start : start + 2]] == [c["text"] for c in alone]


def test_the_best_of_several_has_the_highest_mean_logprob(server: Running) -> None:
    request: dict[str, Any] = {"prompt": "once", "temperature": 1.5, "max_tokens": 20}
    for seed in range(0, 12, 2):
        answer = server.answer("completions", **request, seed=seed, n=2, logprobs=0)
        both = answer["choices"]
        values = [choice["logprobs"]["token_logprobs"] for choice in both]
        means = [sum(each) / len(each) for each in values]
        best = server.answer("completions", **request, seed=seed, best_of=2)
        [choice] = best["choices"]
        assert choice["text"] == both[means.index(max(means))]["text"]
        assert choice["index"] == 0
        assert choice["logprobs"] is None
        assert best["usage"] == answer["usage"] | {
            name: best["usage"][name] for name in best["usage"] if name.endswith("details")
        }


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("n", {"n": 3}),
        ("best_of", {"best_of": 3}),
        ("best_of", {"n": 2, "best_of": 1}),
        ("best_of", {"best_of": 2, "stream": True}),
        ("best_of", {"best_of": 0}),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    server: Running, field: str, fields: dict[str, Any]
) -> None:
    response = server.post("completions", {"prompt": "once", **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field
