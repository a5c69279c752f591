"""Every sampling parameter: it shapes the text, has a range, and several spellings mean one."""

from typing import Any

import pytest

from surefoot.decoding import InvalidParameterError, Sampling, Widths
from surefoot.runtime.simulated import SimulatedRuntime
from surefoot.server import AnswerSettings
from tests.server.running import Running
from tests.support.opener import Opener

USER = [{"role": "user", "content": "tell me"}]
OPEN: dict[str, Any] = {
    "seed": 5,
    "max_tokens": 60,
    "temperature": 1.5,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
}
"""Nothing is truncated, so that whatever truncates makes a difference."""

EFFECTS: dict[str, dict[str, Any]] = {
    "dynatemp_range": {"dynatemp_range": 1.4},
    "dynatemp_exponent": {"dynatemp_range": 1.4, "dynatemp_exponent": 4.0},
    "typical_p": {"typical_p": 0.2},
    "top_n_sigma": {"top_n_sigma": 1.0},
    "min_keep": {"top_p": 0.01, "min_keep": 50},
    "xtc_probability": {"xtc_probability": 1.0, "xtc_threshold": 0.01},
    "xtc_threshold": {"xtc_probability": 1.0, "xtc_threshold": 0.001},
    "repeat_penalty": {"repeat_penalty": 1.5},
    "repeat_last_n": {"repeat_penalty": 1.5, "repeat_last_n": 3},
    "presence_penalty": {"presence_penalty": 4.0},
    "frequency_penalty": {"frequency_penalty": 4.0},
    "dry_multiplier": {"dry_multiplier": 5.0},
    "dry_base": {"dry_multiplier": 0.2, "dry_base": 3.0},
    "dry_allowed_length": {"dry_multiplier": 5.0, "dry_allowed_length": 1},
    "dry_penalty_last_n": {"dry_multiplier": 5.0, "dry_penalty_last_n": 6},
    "dry_sequence_breakers": {"dry_multiplier": 5.0, "dry_sequence_breakers": ["a", "e", "i", "o"]},
    "mirostat": {"mirostat": 2},
    "mirostat_tau": {"mirostat": 2, "mirostat_tau": 1.0},
    "mirostat_eta": {"mirostat": 1, "mirostat_eta": 0.9},
    "samplers": {"samplers": ["top_k"]},
    "logit_bias": {"logit_bias": {"300": 20}},
}
"""For each parameter fields in which it matters; without it the others give another text."""


@pytest.mark.parametrize("name", EFFECTS)
def test_each_sampling_parameter_shapes_the_text(server: Running, name: str) -> None:
    fields = {**OPEN, **EFFECTS[name]}
    prompt = "once"
    if name.startswith("dry"):  # a text that would repeat itself
        fields |= {"temperature": 0, "max_tokens": 150}
        prompt = server.complete(prompt, **fields | {"dry_multiplier": 0, "max_tokens": 70})
    without = {field: value for field, value in fields.items() if field != name}
    assert server.complete(prompt, **fields) == server.complete(prompt, **fields)
    assert server.complete(prompt, **fields) != server.complete(prompt, **without)


@pytest.mark.parametrize("name", EFFECTS)
def test_null_is_the_default(server: Running, name: str) -> None:
    assert server.complete("once", **OPEN, **{name: None}) == server.complete("once", **OPEN)


WRONG = [
    ("dynatemp_range", -1),
    ("dynatemp_exponent", -1),
    ("typical_p", 0),
    ("typ_p", 1.5),
    ("top_n_sigma", "x"),
    ("min_keep", -1),
    ("xtc_probability", 1.1),
    ("xtc_threshold", -0.1),
    ("repeat_last_n", -2),
    ("repeat_penalty", 0),
    ("repetition_penalty", 0),
    ("repetition_penalty", "x"),
    ("presence_penalty", "x"),
    ("frequency_penalty", True),
    ("dry_multiplier", -1),
    ("dry_base", 0.5),
    ("dry_allowed_length", -1),
    ("dry_penalty_last_n", -2),
    ("dry_sequence_breakers", "x"),
    ("mirostat", 3),
    ("mirostat_tau", -1),
    ("mirostat_eta", -1),
    ("min_tokens", -1),
    ("ignore_eos", 1),
    ("samplers", ["top_q"]),
    ("samplers", "kq"),
    ("samplers", [3]),
    ("logit_bias", {"512": 1}),
    ("logit_bias", {"9" * 5000: 1}),
    ("logit_bias", {"5": True}),
    ("logit_bias", {"5": "x"}),
    ("logit_bias", [[5]]),
    ("logit_bias", [[5, True]]),
    ("logit_bias", [[-1, 1]]),
    ("logit_bias", [[False, 1]]),
    ("logit_bias", [[5, 1]] * 4097),
    ("n", 0),
    ("n", 3),
    ("n_probs", -1),
    ("n_probs", 101),
    ("post_sampling_probs", True),
    ("exact", "exactly"),
    ("exact", "strict"),
    ("strict", 1),
    ("verify", "twice"),
    ("return_token_ids", "yes"),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda part: str(part)[:30])
def test_what_is_out_of_range_is_refused_by_the_name_that_the_request_has(
    server: Running, field: str, value: Any
) -> None:
    for path, request in (
        ("completions", {"prompt": "a"}),
        ("chat/completions", {"messages": USER}),
    ):
        response = server.post(path, {**request, field: value})
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert error["param"].startswith(field)
        assert error["message"].startswith(field)


ALIASES: list[tuple[str, str, Any, Any]] = [
    ("repetition_penalty", "repeat_penalty", 1.5, 1.4),
    ("typ_p", "typical_p", 0.2, 0.3),
    ("guided_regex", "regex", "[ab]+;", "[cd]+;"),
    ("guided_choice", "choice", ["one", "two"], ["three"]),
    ("guided_grammar", "grammar", 'root ::= "x"', 'root ::= "y"'),
    ("guided_json", "json_schema", {"enum": ["a"]}, {"enum": ["b"]}),
    ("return_tokens", "return_token_ids", True, False),
]


@pytest.mark.parametrize(("alias", "name", "value", "other"), ALIASES)
def test_an_alias_is_the_parameter_itself(
    server: Running, alias: str, name: str, value: Any, other: Any
) -> None:
    request: dict[str, Any] = {**OPEN, "prompt": "once"}
    one = server.answer("completions", **request, **{alias: value})["choices"]
    assert one == server.answer("completions", **request, **{name: value})["choices"]
    assert one == server.answer("completions", **request, **{name: value, alias: value})["choices"]
    assert one != server.answer("completions", **request, **{name: other})["choices"]
    response = server.post("completions", {**request, alias: value, name: other})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == alias
    assert name in response.json()["error"]["message"]


def test_samplers_are_named_or_lettered(server: Running) -> None:
    names = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"]
    fields = {**OPEN, "top_p": 0.5}
    default = server.complete("once", **fields)
    for same in ([*names, "temperature"], "edskypmxt"):
        assert server.complete("once", **fields, samplers=same) == default
    hot = server.complete("once", **fields, samplers=["temperature", "top_p"])
    assert server.complete("once", **fields, samplers="tp") == hot
    assert server.complete("once", **fields, samplers=["top-p", "temperature"]) == (
        server.complete("once", **fields, samplers="pt")
    )


def test_a_bias_bans_or_forces_a_token_in_either_spelling(server: Running) -> None:
    tokenizer = server.engine.runtime.tokenizer
    request: dict[str, Any] = {"temperature": 0, "max_tokens": 30, "return_token_ids": True}

    def ids(**fields: Any) -> list[int]:
        answer = server.answer("completions", prompt="once", **request, **fields)
        found: list[int] = answer["choices"][0]["token_ids"]
        return found

    plain = ids()
    banned = plain[3]
    bias: Any
    for bias in ({f"{banned}": False}, [[banned, False]], {f"{banned}": -1000}):
        assert banned not in ids(logit_bias=bias)
    word = tokenizer.piece(300).decode()
    for bias in ({"300": 1000}, [[300, 1000]], {word: 1000}, [[word, 1000.0]]):
        assert set(ids(logit_bias=bias)) == {300}
    # In a list a text is a text, digits too; as a key of an object they are an id.
    assert set(ids(logit_bias=[["7", 1000]])) == set(tokenizer.encode("7"))
    assert set(ids(logit_bias={"7": 1000})) == {7}


def test_the_end_may_be_put_off_or_ignored() -> None:
    runtime = SimulatedRuntime(vocabulary_size=512, end_rate=1 / 4, slots=2, context_length=256)
    with Running(runtime) as server:
        request: dict[str, Any] = {"prompt": "once", "temperature": 0, "max_tokens": 100}
        early = server.answer("completions", **request)
        assert early["choices"][0]["finish_reason"] == "stop"
        assert early["usage"]["completion_tokens"] < 50
        later = server.answer("completions", **request, min_tokens=50)
        assert later["usage"]["completion_tokens"] >= 50
        never = server.answer("completions", **request, ignore_eos=True)
        assert never["usage"]["completion_tokens"] == 100


def test_an_unknown_token_in_the_servers_bias_keeps_it_from_starting() -> None:
    with pytest.raises(InvalidParameterError, match="there is no token 512"):
        Running(SimulatedRuntime(vocabulary_size=512), defaults=Sampling(logit_bias=((512, 1.0),)))


def test_each_default_of_the_server_can_be_taken_back_by_a_request() -> None:
    odd = Sampling(temperature=0.0, presence_penalty=9.0, samplers=("penalties", "temperature"))
    with (
        Running(SimulatedRuntime(vocabulary_size=512), defaults=odd) as server,
        Running(SimulatedRuntime(vocabulary_size=512)) as usual,
    ):
        neutral = {"presence_penalty": 0.0, "samplers": "edskypmxt", "temperature": 0.8}
        request = {"prompt": "once", "seed": 1, "max_tokens": 40}
        assert server.complete(**request, **neutral) == usual.complete(**request)
        assert server.complete(**request) != usual.complete(**request)


def test_verify_by_rejection_is_told_and_repeats_its_text(server: Running) -> None:
    request: dict[str, Any] = {"prompt": "once", "seed": 4, "max_tokens": 60, "verify": "rejection"}
    first, again = (server.answer("completions", **request) for _ in range(2))
    assert first["surefoot"]["verify"] == "rejection"
    assert first["surefoot"]["exact"] == "fast"
    assert first["choices"] == again["choices"]


def test_strict_and_rejection_exclude_each_other(server: Running) -> None:
    body = {"prompt": "a", "exact": "strict", "verify": "rejection"}
    response = server.post("completions", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "verify"
    response = server.post("completions", {"prompt": "a", "exact": "fast", "strict": True})
    assert response.json()["error"]["param"] == "strict"


BESIDE_REJECTION: list[tuple[str, dict[str, Any]]] = [
    ("exact", {"exact": "strict"}),
    ("strict", {"strict": True}),
    ("mirostat", {"mirostat": 2}),
]


@pytest.mark.parametrize(("field", "fields"), BESIDE_REJECTION, ids=str)
def test_what_rejection_excludes_is_refused_by_what_was_sent_and_the_servers_option(
    field: str, fields: dict[str, Any]
) -> None:
    settings = AnswerSettings(rule="rejection")
    runtime = SimulatedRuntime(vocabulary_size=512)
    opener = Opener(runtime, Widths((2, 3, 4)))
    with Running(runtime, opener=opener, answers=settings) as server:
        body = {"prompt": "a", "max_tokens": 2, **fields}
        error = server.post("completions", body).json()["error"]
        assert error["param"] == field
        assert error["message"].startswith(f"{field}: ")
        assert "--verify rejection" in error["message"]
        for verify in ({"verify": "coupled"}, {"verify": None}):
            response = server.post("completions", {**body, **verify})
            assert response.status_code == (200 if verify["verify"] else 400)
        both = server.post("completions", {**body, "verify": "rejection"}).json()["error"]
        assert both["param"] == "verify"


@pytest.mark.parametrize(
    "options", [{"defaults": Sampling(mirostat=2)}, {"answers": AnswerSettings(exact="strict")}]
)
def test_what_the_server_is_set_to_is_named_where_rejection_is_asked_for(
    options: dict[str, Any],
) -> None:
    with Running(SimulatedRuntime(vocabulary_size=512), **options) as server:
        response = server.post("completions", {"prompt": "a", "verify": "rejection"})
    error = response.json()["error"]
    assert error["param"] == "verify"
    assert "this server's default" in error["message"]
