"""What grammars let through in the toy vocabulary: whole texts, forced ones, odd ones."""

import json
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.constraints import Calls, Controls, ControlSpec, Grammar, GrammarError, Reasoning
from surefoot.constraints.grammar_control import GrammarControl
from surefoot.decoding import ControlError
from tests.constraints.toy import (
    END,
    MARK,
    PIECES,
    SPECIAL,
    allowed_of,
    encode,
    one,
    text_of,
    toy_controls,
    walked,
)

WHOLE = {
    "regex": (Grammar("regex", "(ab|c)+é?|[0-9]{2,3}"), "(ab|c)+é?|[0-9]{2,3}"),
    "choice": (Grammar("choice", '["a", "ab", "abc", "é/\\"\\n"]'), 'a|ab|abc|é/"\n'),
    "lark": (Grammar("lark", 'start: "a" inner* "}}"\ninner: "[[" /[a-c]/'), r"a(\[\[[abc])*\}\}"),
    "gbnf": (Grammar("gbnf", 'root ::= [a-c]+ "bc" | "{" "}"{1,3}'), "[a-c]+bc|{}{1,3}"),
    "recursive gbnf": (
        Grammar("gbnf", 'root ::= top\ntop ::= [ab]* "b" | "<" top ">"'),
        "<*[ab]*b>*",
    ),
}


@pytest.fixture(scope="module")
def controls() -> Controls:
    return toy_controls()


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_text_that_ended_matches_as_a_whole(controls: Controls, name: str, seed: int) -> None:
    grammar, pattern = WHOLE[name]
    said = walked(controls, ControlSpec(grammar), seed)
    if len(said) < 60:  # it came to an end
        text = text_of([token for token in said if token != END]).decode()
        assert re.fullmatch(pattern, text), text


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_state_is_that_of_a_fresh_matcher_fed_with_the_text(
    controls: Controls, seed: int
) -> None:
    """Cases G3 and G5: in other tokens, too, and as many were taken as were said."""
    spec = ControlSpec(Grammar("gbnf", 'root ::= "{" ([a-c]+ | root) "}" | "[[" [a-c]* "]]"'))
    live = controls.control(spec)
    assert isinstance(live, GrammarControl)
    for count, token in enumerate(walked(controls, spec, seed, most=20)):
        if token == END:
            return
        live.advance(token)
        assert live.consumed == count + 1
    fresh = controls.control(spec)
    for byte in text_of(walked(controls, spec, seed, most=20)):
        fresh.advance(byte)
    assert fresh.finished == live.finished
    if not live.finished:
        assert allowed_of(fresh) == allowed_of(live)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), number=st.integers(0, 2))
def test_a_forced_text_is_the_only_one_that_could_come(
    controls: Controls, seed: int, number: int
) -> None:
    source = ['{"type": "object", "required": ["abc"]}', "", '["abcabc", "abcab:"]'][number]
    kind = ("json_schema", "json_object", "choice")
    control = controls.control(ControlSpec(Grammar(kind[number], source)))  # type: ignore[arg-type]
    for token in walked(controls, ControlSpec(Grammar(kind[number], source)), seed, 15):  # type: ignore[arg-type]
        forced = text_of(list(control.forced()))
        if forced:
            assert control.permitted([END]) == 0
            for byte in range(256):
                assert (control.permitted([byte]) == 1) == (byte == forced[0])
            assert control.permitted(list(control.forced())) == len(control.forced())
        if token == END:
            return
        control.advance(token)


def test_what_looks_like_a_special_token_is_text(controls: Controls) -> None:
    """Forced tokens would else be ones that the grammar does not take."""
    control = controls.control(ControlSpec(Grammar("choice", '["<|mark|>a", "<|mark|>b"]')))
    assert control.permitted([MARK]) == 0
    assert MARK not in allowed_of(control)
    assert SPECIAL.isdisjoint(control.forced())
    while control.forced():
        control.advance(control.forced()[0])
    assert set(allowed_of(control)) == {one(b"a"), one(b"b")}


def test_a_tokenizer_that_puts_a_blank_in_front_is_not_believed() -> None:
    controls = Controls(PIECES, SPECIAL, frozenset({END}), lambda text: encode(" " + text))
    control = controls.control(ControlSpec(Grammar("choice", '["abcabc"]')))
    while not control.finished:
        control.advance(control.forced()[0])
    reasoning = Reasoning("<think>", "</think>", opened=True, budget=0)
    thought = controls.control(ControlSpec(reasoning=reasoning))
    assert text_of(list(thought.forced())) == b"</think>"


def test_nothing_comes_after_the_end(controls: Controls) -> None:
    """Case G2."""
    control = controls.control(ControlSpec(Grammar("regex", "ab?")))
    control.advance(one(b"a"))
    assert control.finished is None
    assert set(allowed_of(control)) == {one(b"b"), END}
    control.advance(END)
    assert control.permitted([one(b"b")]) == 0
    with pytest.raises(ControlError):
        control.advance(one(b"b"))
    control = controls.control(ControlSpec(Grammar("regex", "ab?")))
    control.advance(one(b"ab"))
    assert control.finished == "end of the grammar"
    with pytest.raises(ControlError):
        control.advance(END)


def test_a_matcher_that_fails_says_why(controls: Controls) -> None:
    """Case G11."""
    control = controls.control(ControlSpec(Grammar("regex", "ab")))
    with pytest.raises(ControlError, match="the grammar failed: "):
        control.advance(one(b"x"))
    with pytest.raises(ControlError, match="the grammar failed: "):
        control.allowed()


def test_a_grammar_is_compiled_once_and_served_to_several_threads(controls: Controls) -> None:
    faults: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                spec = ControlSpec(Grammar("regex", f"(ab|c){{1,{1 + (number + turn) % 7}}}"))
                controls.check(spec)
                walked(controls, spec, turn)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_blanks_between_the_parts_of_json_are_bounded(controls: Controls, kind: str) -> None:
    source = '{"type": "object"}' if kind == "json_schema" else ""
    control = controls.control(ControlSpec(Grammar(kind, source)))  # type: ignore[arg-type]
    control.advance(one(b"{"))
    assert control.permitted([one(b"\n")] * 9) == 1
    assert control.permitted([one(b" ")] * 9) == 1
    assert control.permitted([one(b"\n"), *[one(b" ")] * 400]) <= 41


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"properties": {"a/b": {"items": {"type": "strin"}}}}, "at #/properties/a~1b/items: "),
        ({"anyOf": [{"type": "null"}, {"type": "string", "pattern": "a(b"}]}, "at #/anyOf/1: "),
        ({"properties": {"a": {"uniqueItems": True}}}, "at #/properties/a: "),
        ({"type": "array", "minItems": 1, "items": {"enum": []}}, "#"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "demands"),
        ({"$ref": "#"}, "no text"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"$ref": "https://example.org/x"}, "example.org"),
        ({"uniqueItems": True, "x-guidance": {"lenient": True}}, "uniqueItems"),
    ],
)
def test_a_schema_at_fault_is_refused_with_the_path(
    controls: Controls, schema: dict[str, object], said: str
) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)):
        controls.check(ControlSpec(Grammar("json_schema", json.dumps(schema))))


def test_keywords_that_mean_nothing_are_warned_of(controls: Controls) -> None:
    schema = {"properties": {"a": {"type": "string", "maxlength": 3}}, "title": "x", "x-y": 1}
    [warning] = controls.check(ControlSpec(Grammar("json_schema", json.dumps(schema))))
    assert "'maxlength' at #/properties/a" in warning


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        (Grammar("json_schema", "[" * 100_000), "too many levels"),
        (Grammar("json_schema", '{"items":' * 900 + "{}" + "}" * 900), "json_schema: "),
        (Grammar("regex", "a{100000000}"), "column 2: {100000000} repeats more than 10000"),
        (Grammar("regex", "a(b"), "column 2: can't be used: unclosed group"),
        (Grammar("lark", 'start: "a"\nb: %%'), "line 2, column 5: "),
        (Grammar("lark", "start: /a(b/"), "line 1, column 8: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_would_take_too_long_or_is_wrong_is_refused(
    controls: Controls, grammar: Grammar, said: str
) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)):
        controls.check(ControlSpec(grammar))


@pytest.mark.parametrize("triggers", [(), ("",), ("[[", "no")])
def test_triggers_that_the_grammar_does_not_begin_with_are_refused(
    controls: Controls, triggers: tuple[str, ...]
) -> None:
    calls = Calls(triggers, Grammar("lark", 'start: "[[" /[a-z]/ "]]"'))
    with pytest.raises(GrammarError, match="tools"):
        controls.check(ControlSpec(calls=calls))


def test_thirty_thousand_choices_are_not_too_many(controls: Controls) -> None:
    grammar = Grammar("choice", json.dumps([f"a{number}b" for number in range(30_000)]))
    control = controls.control(ControlSpec(grammar))
    for text in (b"a", b"2", b"9"):
        control.advance(one(text))
    assert one(b"b") in allowed_of(control)
    assert one(b"a") not in allowed_of(control)
