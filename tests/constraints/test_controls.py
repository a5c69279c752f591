"""What controls let through is what the rules say, and their state is that of the text."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest

from surefoot import models
from surefoot.constraints import Calls, Controls, ControlSpec, Grammar, GrammarError, Reasoning
from surefoot.constraints.grammar_control import GrammarControl
from surefoot.decoding import Control, ControlError
from surefoot.engine.vocabulary import controls_for
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.constraints.schemas import SCHEMAS

Walk = Callable[..., list[int]]


@pytest.fixture(scope="module")
def runtime() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.TARGET, context_length=64, threads=1)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def controls(runtime: LibllamaRuntime) -> Controls:
    return controls_for(runtime)


def tokens_in(mask: Any, size: int) -> list[int]:
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=size)
    return [int(token) for token in np.flatnonzero(bits)]


def walk(runtime: LibllamaRuntime, control: Control, seed: int, most: int = 400) -> list[int]:
    """Random allowed tokens until the text ends; short ones that close things are likelier."""
    rng, ends = random.Random(seed), runtime.tokenizer.end_of_generation
    said: list[int] = []
    closing = re.compile(rb'^[\]}"0-9,:\s\-TZ.@a-f]*$')
    while control.finished is None and len(said) < most:
        forced = list(control.forced())
        if forced:
            token = forced[0]
        else:
            mask = control.allowed()
            assert mask is not None
            allowed = tokens_in(mask, runtime.vocabulary_size)
            if any(token in ends for token in allowed) and rng.random() < 0.5:
                return said
            allowed = [token for token in allowed if token not in ends]
            quick = [t for t in allowed if closing.match(runtime.tokenizer.piece(t))]
            shut = [t for t in quick if runtime.tokenizer.piece(t)[:1] in (b"]", b"}", b'"')]
            pool = shut if shut and rng.random() < 0.7 else quick or allowed
            token = rng.choice(pool)
        control.advance(token)
        said.append(token)
    return said


def text_of(runtime: LibllamaRuntime, tokens: list[int]) -> str:
    return b"".join(map(runtime.tokenizer.piece, tokens)).decode()


@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_what_a_schema_lets_through_is_valid(
    runtime: LibllamaRuntime, controls: Controls, index: int
) -> None:
    schema = SCHEMAS[index]
    spec = ControlSpec(Grammar("json_schema", json.dumps(schema)))
    assert controls.check(spec) == []
    ended = 0
    for seed in range(6):
        control = controls.control(spec)
        said = walk(runtime, control, seed)
        if control.finished is None and not _complete(control):
            continue
        ended += 1
        value = json.loads(text_of(runtime, said))
        jsonschema.validate(
            value, schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
        )
    assert ended >= 3, "too few walks came to an end"


def _complete(control: Control) -> bool:
    return isinstance(control, GrammarControl) and control.accepting


def test_there_are_fifty_schemas() -> None:
    assert len(SCHEMAS) == 50
    assert len({json.dumps(schema) for schema in SCHEMAS}) == 50


@pytest.mark.parametrize("seed", range(5))
def test_the_state_is_that_of_a_fresh_matcher_fed_with_the_text(
    runtime: LibllamaRuntime, controls: Controls, seed: int
) -> None:
    """Case G5, and case G3: it has taken as many tokens as were said."""
    spec = ControlSpec(Grammar("json_schema", json.dumps(SCHEMAS[42])))
    said = walk(runtime, controls.control(spec), seed)
    live = controls.control(spec)
    assert isinstance(live, GrammarControl)
    for count, token in enumerate(said):
        fresh = controls.control(spec)
        for before in said[:count]:
            fresh.advance(before)
        mask = fresh.allowed()
        assert mask is not None
        assert np.array_equal(live.allowed(), mask)
        assert list(live.forced()) == list(fresh.forced())
        assert live.permitted(said[count:]) == len(said) - count
        live.advance(token)
        assert live.consumed == count + 1


def test_nothing_comes_after_the_end(runtime: LibllamaRuntime, controls: Controls) -> None:
    """Case G2."""
    control = controls.control(ControlSpec(Grammar("choice", '["yes"]')))
    for token in runtime.tokenizer.encode("yes"):
        control.advance(token)
    assert control.finished == "end of the grammar"
    newline = runtime.tokenizer.encode("\n")
    assert control.permitted(newline) == 0
    with pytest.raises(ControlError):
        control.advance(newline[0])


def test_whitespace_in_json_is_bounded(runtime: LibllamaRuntime, controls: Controls) -> None:
    """Case G3."""
    control = controls.control(ControlSpec(Grammar("json_object")))
    control.advance(runtime.tokenizer.encode("{")[0])
    [newline] = runtime.tokenizer.encode("\n")
    [blank] = runtime.tokenizer.encode(" ")
    assert control.permitted([newline] * 5) == 1
    assert control.permitted([newline, *[blank] * 400]) <= 41


def test_behind_the_reasoning_only_what_the_grammar_takes(
    runtime: LibllamaRuntime, controls: Controls
) -> None:
    """Case G1: the tag inside a draft, and a code fence behind it."""
    encode = runtime.tokenizer.encode
    reasoning = Reasoning("<think>", "</think>", opened=True)
    spec = ControlSpec(Grammar("json_object"), reasoning)
    thought, [end] = encode("I think so."), encode("</think>")
    fence, brace = encode("```json"), encode("{")
    control = controls.control(spec)
    assert control.permitted([*thought, end, *fence]) == len(thought) + 1
    blank = encode("\n\n")
    assert control.permitted([*thought, end, *blank, *brace]) == len(thought) + len(blank) + 2
    for token in [*thought, end]:
        control.advance(token)
    mask = control.allowed()
    assert mask is not None
    allowed = tokens_in(mask, runtime.vocabulary_size)
    assert brace[0] in allowed
    assert fence[0] not in allowed
    assert control.reasoning_tokens == len(thought)


def test_a_thought_may_not_end_the_text_while_an_answer_is_due(
    runtime: LibllamaRuntime, controls: Controls
) -> None:
    reasoning = Reasoning("<think>", "</think>", opened=True)
    control = controls.control(ControlSpec(Grammar("json_object"), reasoning))
    mask = control.allowed()
    assert mask is not None
    allowed = set(tokens_in(mask, runtime.vocabulary_size))
    assert not allowed & runtime.tokenizer.end_of_generation
    assert len(allowed) > runtime.vocabulary_size - 100


@pytest.mark.parametrize("said", ["<think>a b</think>{", "{", " {"])
def test_reasoning_may_come_or_not(runtime: LibllamaRuntime, controls: Controls, said: str) -> None:
    spec = ControlSpec(Grammar("json_object"), Reasoning("<think>", "</think>"))
    control = controls.control(spec)
    tokens = runtime.tokenizer.encode(said)
    assert control.permitted(tokens) == len(tokens)
    for token in tokens:
        control.advance(token)
    assert control.permitted(runtime.tokenizer.encode('"a": 1}')) > 0
    assert control.permitted(runtime.tokenizer.encode("word")) == 0


@pytest.mark.parametrize("budget", [0, 3, 16])
def test_a_budget_forces_the_end_at_its_token(
    runtime: LibllamaRuntime, controls: Controls, budget: int
) -> None:
    """Case H5."""
    reasoning = Reasoning("<think>", "</think>", opened=True, budget=budget, message="\nEnough.")
    control = controls.control(ControlSpec(reasoning=reasoning))
    [word] = runtime.tokenizer.encode("a")
    assert control.permitted([word] * 30) == budget
    for _ in range(budget):
        assert list(control.forced()) == []
        control.advance(word)
    closing = runtime.tokenizer.encode("\nEnough.</think>")
    for token in closing:
        assert control.forced()[0] == token
        control.advance(token)
    assert list(control.forced()) == []
    assert control.reasoning_tokens == budget
    assert control.permitted([word] * 9) == 9


def test_calls_are_free_text_until_their_trigger(
    runtime: LibllamaRuntime, controls: Controls
) -> None:
    rule = 'start: "[[" /[a-z]+/ "]]"'
    spec = ControlSpec(calls=Calls(("[[",), Grammar("lark", rule)))
    control, encode = controls.control(spec), runtime.tokenizer.encode
    for token in encode("some [ text, "):
        assert control.permitted([token]) == 1
        control.advance(token)
    assert control.permitted(encode("[[abc]] and more [ text")) == len(
        encode("[[abc]] and more [ text")
    )
    for token in encode("["):
        control.advance(token)
    assert control.permitted(encode("[ABC")) < len(encode("[ABC"))
    for token in encode("["):
        control.advance(token)
    mask = control.allowed()
    assert mask is not None
    pieces = {runtime.tokenizer.piece(t) for t in tokens_in(mask, runtime.vocabulary_size)}
    assert b"a" in pieces
    assert b"A" not in pieces


def test_a_call_that_is_required_comes_at_once_and_alone(
    runtime: LibllamaRuntime, controls: Controls
) -> None:
    calls = Calls(
        ("[[",), Grammar("lark", 'start: "[[" /[a-z]/ "]]"'), required=True, parallel=False
    )
    control = controls.control(ControlSpec(calls=calls))
    assert control.permitted(runtime.tokenizer.encode("Well")) == 0
    for token in runtime.tokenizer.encode("[[a]]"):
        control.advance(token)
    assert control.finished == "end of the tool call"


GBNF = {
    'root ::= "a" "b"': "ab",
    "root ::= [a-c]+ [^a-z]": "abc9",
    'root ::= ("x" | "y"){2,3}': "xyx",
    'root ::= item{2}\nitem ::= "- " [^\\n]+ "\\n"': "- a\n- b c\n",
    'root ::= "\\u00e9" "\\x41" "\\\\"': "éA\\",
    '# comment\nroot ::= (\n  "a" |\n  "b" # other\n) tail-rule?\ntail-rule ::= "!"': "b!",
    'root ::= expr\nexpr ::= term ("+" term)*\nterm ::= [0-9] | "(" expr ")"': "(1+2)+3",
}


@pytest.mark.parametrize("source", GBNF)
def test_gbnf_is_read_as_llama_cpp_reads_it(
    runtime: LibllamaRuntime, controls: Controls, source: str
) -> None:
    control = controls.control(ControlSpec(Grammar("gbnf", source)))
    tokens = runtime.tokenizer.encode(GBNF[source])
    assert control.permitted(tokens) == len(tokens)
    assert control.permitted(runtime.tokenizer.encode("~")) == 0


@pytest.mark.parametrize(
    ("grammar", "place"),
    [
        (Grammar("json_schema", '{"type": 5}'), "type must be"),
        (
            Grammar("json_schema", '{"type": "object", "unevaluatedItems": true}'),
            "unevaluatedItems",
        ),
        (Grammar("json_schema", '{"$ref": "#/nowhere"}'), "/nowhere"),
        (Grammar("json_schema", '{"$ref": "#"}'), "no text at all"),
        (Grammar("json_schema", '{"a": '), "line 1 column"),
        (Grammar("json_schema", "false"), "no text"),
        (Grammar("json_schema", '{"enum": []}'), "Unsatisfiable"),
        (Grammar("regex", "[a-"), "unclosed"),
        (Grammar("lark", "start: a"), 'unknown name: "a"'),
        (Grammar("gbnf", 'root ::= "a" nothing'), "nothing"),
        (Grammar("gbnf", "root = 1"), "line 1"),
        (Grammar("gbnf", "  "), "empty"),
        (Grammar("choice", "[]"), "at least one"),
        (Grammar("choice", "[3]"), "text"),
    ],
    ids=str,
)
def test_what_is_no_grammar_is_refused_with_its_place(
    controls: Controls, grammar: Grammar, place: str
) -> None:
    """Case G11."""
    with pytest.raises(GrammarError, match=re.escape(place)):
        controls.check(ControlSpec(grammar))


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("gbnf", 'root ::= a{1000}\na ::= "b"{1000}'),
        Grammar("regex", "(a{1000}){1000}"),
        Grammar(
            "json_schema",
            json.dumps({"type": "object", "properties": {f"p{i}": {} for i in range(6_000)}}),
        ),
    ],
    ids=["gbnf", "regex", "json_schema"],
)
def test_a_grammar_that_costs_too_much_is_refused_before_the_text_begins(
    controls: Controls, grammar: Grammar
) -> None:
    """Case G11: what would fail at the first token is no server's fault, and said before."""
    name = "grammar" if grammar.kind == "gbnf" else grammar.kind
    with pytest.raises(GrammarError, match=r"too many|max is") as refusal:
        controls.check(ControlSpec(grammar))
    assert refusal.value.name == name


@pytest.mark.parametrize(
    ("kind", "source"), [("lark", 'start: "a" <|im_end|>'), ("gbnf", 'root ::= "a" <|im_end|>')]
)
def test_a_grammar_may_name_the_end_token(
    runtime: LibllamaRuntime, controls: Controls, kind: Any, source: str
) -> None:
    [end], [a] = (runtime.tokenizer.encode(text) for text in ("<|im_end|>", "a"))
    control = controls.control(ControlSpec(Grammar(kind, source)))
    with pytest.raises(ControlError):
        control.advance(end)
    control.advance(a)
    assert control.permitted([end]) == 1
    control.advance(end)


@pytest.mark.parametrize(
    ("pattern", "warned"),
    [(r'^[^"]{3}$', True), (r"^[^\\\\]*$", True), ("^[^n]*$", False), ('^"[^n]*$', False)],
)
def test_a_pattern_that_excludes_what_json_escapes_is_warned_of(
    controls: Controls, pattern: str, warned: bool
) -> None:
    schema = json.dumps({"type": "string", "pattern": pattern})
    found = controls.check(ControlSpec(Grammar("json_schema", schema)))
    assert any("excludes quotes" in text for text in found) == warned
