"""Grammars, budgets, scores and self-checks on the embedded model, with speculation and without."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jsonschema
import pytest

from surefoot.cli import parser
from surefoot.commands.plan import EnginePlan
from surefoot.constraints import Calls, ControlSpec, Grammar, GrammarError, Reasoning
from surefoot.decoding import GREEDY, Sampling, ScoreWish
from surefoot.engine import Engine, Generation, Request

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SPECS: dict[str, ControlSpec] = {
    "schema": ControlSpec(Grammar("json_schema", json.dumps(PERSON))),
    "regex": ControlSpec(Grammar("regex", r"[A-Z][a-z]{2,6}( [a-z]{1,6}){2,4}\.")),
    "choice": ControlSpec(Grammar("choice", '["yes, of course", "no, never", "perhaps"]')),
    "gbnf": ControlSpec(
        Grammar("gbnf", 'root ::= "- " item ("\\n- " item){2}\nitem ::= [a-z ]{3,12}')
    ),
    "lark": ControlSpec(Grammar("lark", 'start: "<" /[a-z]{1,5}/ ">" /[0-9]+/ ";"')),
    "reasoning, then schema": ControlSpec(
        Grammar("json_schema", json.dumps(PERSON)), Reasoning("<think>", "</think>", budget=12)
    ),
}
DRAFTERS = ["none", "ngram-simple", "draft-simple", "draft-mtp"]


@contextmanager
def engine_with(drafter: str, **options: Any) -> Iterator[Engine]:
    named = ["--spec-type", drafter, "--spec-ngram-simple-size-n", "2"]
    arguments = parser().parse_args(
        ["serve", "-t", "1", "-c", "8192", "-np", "4", *named,
         *[str(part) for name, value in options.items() for part in (f"--{name}", value)]]
    )  # fmt: skip
    with EnginePlan.of(arguments, slots=4).open() as engine:
        yield engine


@pytest.fixture(scope="module", params=DRAFTERS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with engine_with(request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain() -> Iterator[Engine]:
    with engine_with("none") as opened:
        yield opened


def ask(engine: Engine, prompt: str, **fields: Any) -> Generation:
    tokens = tuple(engine.runtime.tokenizer.encode(CHAT.format(prompt)))
    generation = engine.run(Request(tokens, **{"max_tokens": 120, "exact": "strict", **fields}))
    assert generation.error is None
    return generation


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_rule_is_kept_and_speculation_changes_no_token(
    engine: Engine, plain: Engine, name: str, temperature: float
) -> None:
    fields = {"control": SPECS[name], "sampling": Sampling(seed=11, temperature=temperature)}
    got = ask(engine, "Describe a person.", **fields)
    assert got.tokens == ask(plain, "Describe a person.", **fields).tokens
    if got.finish is None or got.finish.reason == "length":
        return
    text = got.text.rpartition("</think>")[2].strip() if "reasoning" in name else got.text
    match name:
        case "schema" | "reasoning, then schema":
            jsonschema.validate(json.loads(text), PERSON)
        case "regex":
            assert re.fullmatch(SPECS[name].grammar.source, text)  # type: ignore[union-attr]
        case "choice":
            assert text in ("yes, of course", "no, never", "perhaps")
        case "gbnf":
            assert re.fullmatch(r"- [a-z ]{3,12}(\n- [a-z ]{3,12}){2}", text)
        case "lark":
            assert re.fullmatch(r"<[a-z]{1,5}>[0-9]+;", text)


PARAMETERS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 1.4},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.4},
    "min_p": {"min_p": 0.4},
    "typical_p": {"typical_p": 0.3},
    "top_n_sigma": {"top_n_sigma": 0.6},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    "dynamic temperature": {"dynatemp_range": 0.9, "dynatemp_exponent": 2.0},
    "repeat_penalty": {"repeat_penalty": 1.6},
    "presence_penalty": {"presence_penalty": 3.0},
    "frequency_penalty": {"frequency_penalty": 2.0, "repeat_last_n": 16},
    "dry": {"dry_multiplier": 3.0},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 2.0},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.4},
    "logit_bias": {"logit_bias": ((198, -8.0), (289, 6.0))},
    "min_tokens": {"min_tokens": 40, "top_k": 3},
    "ignore_eos": {"ignore_eos": True, "top_k": 3},
    "samplers": {"samplers": ("temperature", "top_p"), "top_p": 0.7},
    "seed": {"seed": 12},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_changes_the_text_and_no_drafter_does(
    engine: Engine, plain: Engine, name: str
) -> None:
    """Cases H1 to H3, with each drafter."""
    prompt = "Write a Python function that counts the words in a text, and explain it."
    common: dict[str, Any] = {"seed": 11, "temperature": 1.0}
    usual = ask(plain, prompt, sampling=Sampling(**common), max_tokens=50)
    sampling = Sampling(**{**common, **PARAMETERS[name]})
    expected = ask(plain, prompt, sampling=sampling, max_tokens=50)
    assert expected.tokens != usual.tokens
    got = ask(engine, prompt, sampling=sampling, max_tokens=50)
    assert got.tokens == expected.tokens


def test_forced_tokens_cost_no_pass(plain: Engine) -> None:
    spec = ControlSpec(Grammar("choice", '["a rather long answer that is the only one there is"]'))
    got = ask(plain, "Hm?", control=spec)
    assert got.text == "a rather long answer that is the only one there is"
    assert got.summary.counts.rounds == 0


def test_scores_are_told_of_forced_tokens_too_and_change_no_text(
    engine: Engine, plain: Engine
) -> None:
    """Case L1: the same values with speculation and without, and no text hangs on them."""
    for spec in (None, SPECS["schema"]):
        fields: dict[str, Any] = {"control": spec, "sampling": GREEDY, "max_tokens": 40}
        silent = ask(plain, "Describe a person.", **fields)
        one = ask(engine, "Describe a person.", wish=ScoreWish(3), **fields)
        other = ask(plain, "Describe a person.", wish=ScoreWish(3), **fields)
        assert one.tokens == other.tokens == silent.tokens
        assert len(one.entries) == len(other.entries) == len(one.tokens)
        for mine, theirs in zip(one.entries, other.entries, strict=True):
            assert mine.scores is not None
            assert theirs.scores is not None
            assert mine.scores.logprob == pytest.approx(theirs.scores.logprob, abs=1e-3)
            assert [t for t, _ in mine.scores.top] == [t for t, _ in theirs.scores.top]
            assert sum(2.718281828**value for _, value in mine.scores.top) <= 1 + 1e-6


@pytest.mark.parametrize("budget", [0, 1, 7, 16])
def test_a_thinking_budget_ends_exactly_at_its_token(engine: Engine, budget: int) -> None:
    """Cases H5 and H6."""
    spec = ControlSpec(reasoning=Reasoning("<think>", "</think>", opened=True, budget=budget))
    prompt = "Write a function.<|im_end|>\n<|im_start|>assistant\n<think>\nI should write"
    tokens = tuple(engine.runtime.tokenizer.encode("<|im_start|>user\n" + prompt))
    bias = ((engine.runtime.tokenizer.encode("</think>")[0], float("-inf")),)
    sampling = Sampling(temperature=0.0, logit_bias=bias, ignore_eos=True)
    got = engine.run(
        Request(tokens, sampling, max_tokens=40, control=spec, exact="strict"),
    )
    [end] = engine.runtime.tokenizer.encode("</think>")
    assert got.tokens.index(end) == budget
    assert got.summary.reasoning_tokens == budget


def test_a_tool_call_within_free_text_is_held_to_its_grammar(engine: Engine, plain: Engine) -> None:
    """The trigger is the model's own; what follows obeys, whatever block it came in (case G1)."""
    rule = 'start: "<tool_call>" "\\n" "{\\"name\\": \\"f\\", \\"arguments\\": " args "}"\n'
    rule += 'args: %json {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, '
    rule += '"required": ["city"], "additionalProperties": false}\n'
    for trigger in engine.runtime.tokenizer.encode("<tool_call>"):
        assert engine.runtime.tokenizer.piece(trigger) == b"<tool_call>"
    calls = Calls(("<tool_call>",), Grammar("lark", rule), parallel=False)
    prompt = (
        'You may call get_weather like this: <tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</tool_call>. What is the weather in Paris?'
    )
    fields: dict[str, Any] = {"control": ControlSpec(calls=calls), "sampling": GREEDY}
    got = ask(engine, prompt, **fields)
    assert got.tokens == ask(plain, prompt, **fields).tokens
    found = re.search(r"<tool_call>(.*)", got.text, re.DOTALL)
    assert found is not None
    call = json.loads(found[1])
    assert call["name"] == "f"
    assert call["arguments"]["city"] in ("Rome", "Oslo")


def test_a_grammar_that_is_none_is_refused_before_anything_is_queued(engine: Engine) -> None:
    """Case G11."""
    for grammar in (
        Grammar("regex", "[a-"),
        Grammar("gbnf", 'root ::= "a" nothing'),
        Grammar("lark", "start: nothing"),
        Grammar("json_schema", '{"type": 5}'),
        Grammar("json_schema", "{"),
        Grammar("choice", "[]"),
    ):
        with pytest.raises(GrammarError, match=r"can't be used|is no valid|must be"):
            engine.submit(Request((5,), control=ControlSpec(grammar)), lambda _: None)
    assert engine.idle


def test_answers_that_are_checked_agree_with_what_was_said() -> None:
    with engine_with("draft-mtp", **{"self-check": 1.0}) as engine:
        for seed in range(3):
            for exact in ("fast", "strict"):
                for control in (None, SPECS["schema"], SPECS["choice"]):
                    ask(
                        engine,
                        "Describe a person.",
                        sampling=Sampling(seed=seed, temperature=0.7, repeat_penalty=1.1),
                        exact=exact,
                        control=control,
                        wish=ScoreWish(1) if seed == 2 else None,
                        max_tokens=30,
                    )
        while not engine.idle:
            engine.step()
        assert engine.self_check is not None
        agreement = engine.self_check.agreement
    assert (agreement.answers, agreement.failed, agreement.wrong) == (18, 0, 0)
    assert agreement.equal > 100


def test_a_wrong_answer_is_found_out() -> None:
    with engine_with("none", **{"self-check": 1.0}) as engine:
        generation = ask(engine, "Write a function.", sampling=GREEDY, max_tokens=20)
        assert engine.self_check is not None
        [check] = engine.self_check._waiting
        check.tokens[-3] = 7
        while not engine.idle:
            engine.step()
        assert engine.self_check.agreement.wrong > 0
        assert engine.self_check.agreement.wrong_answers == [generation.id]


def test_n_choices_share_one_prefill_and_equal_their_solo_runs(engine: Engine) -> None:
    tokens = tuple(engine.runtime.tokenizer.encode(CHAT.format("Name some colours. " * 20)))
    requests = [
        Request(tokens, Sampling(seed=seed, temperature=1.0), max_tokens=12) for seed in range(3)
    ]
    engine.forget()
    group = engine.submit_group(requests, [lambda _: None] * 3)
    while not engine.idle:
        engine.step()
    assert sum(g.summary.prefilled_tokens for g in group) == len(tokens) - 1
    assert [g.summary.cached_tokens for g in group[1:]] == [len(tokens) - 1] * 2
    assert len({tuple(g.tokens) for g in group}) > 1
    for generation, request in zip(group, requests, strict=True):
        engine.forget()
        alone = engine.run(request)
        ties = generation.summary.counts.near_tie_positions
        first = next(
            (
                len(tokens) + i
                for i, (a, b) in enumerate(zip(generation.tokens, alone.tokens, strict=False))
                if a != b
            ),
            None,
        )
        assert first is None or first in ties
