"""Calls begin with their trigger, wherever it lies, and end with their grammar."""

import pytest

from surefoot.constraints import Calls, Controls, ControlSpec, Grammar
from surefoot.decoding import Control
from tests.constraints.toy import (
    END,
    MARK,
    PIECES,
    allowed_of,
    encode,
    one,
    text_of,
    toy_controls,
    walked,
)

CALL = Grammar("lark", 'start: "[[" /[a-z]{1,3}/ "]]"')


@pytest.fixture(scope="module")
def controls() -> Controls:
    return toy_controls()


def test_behind_a_call_that_may_end_another_may_begin(controls: Controls) -> None:
    """What of the trigger lies at the text's end is no part of the next one."""
    grammar = Grammar("lark", 'start: "[[" /[a-z]+/ (" x")?')
    control = controls.control(ControlSpec(calls=Calls(("[[",), grammar)))
    for text in (b"x[[", b"a"):
        control.advance(one(text))
    again = one(b"[[")
    assert control.permitted([again]) == 1
    assert again in allowed_of(control)


def control_of(controls: Controls, *, required: bool = False, parallel: bool = True) -> Control:
    return controls.control(
        ControlSpec(calls=Calls(("[[",), CALL, required=required, parallel=parallel))
    )


def pieces_allowed(control: Control) -> set[bytes]:
    return {PIECES[token] for token in allowed_of(control)}


@pytest.mark.parametrize("trigger", [[b"[["], [b"[", b"["], [b"x[["], [b"x", b"[["], [b"[[a"]])
def test_a_trigger_is_found_whatever_tokens_it_comes_in(
    controls: Controls, trigger: list[bytes]
) -> None:
    control = control_of(controls)
    for text in [b"a", b"[", b" ", *trigger]:
        control.advance(one(text))
    allowed = pieces_allowed(control)
    assert b"a" in allowed
    assert b"Z" not in allowed
    assert END not in allowed_of(control)


def test_what_only_begins_like_a_trigger_is_free_text(controls: Controls) -> None:
    control = control_of(controls)
    control.advance(one(b"["))
    assert control.allowed() is None or {b"Z", b"a", b"["} <= pieces_allowed(control)
    control.advance(one(b"Z"))
    assert {b"Z", b"[[", b"<|end|>"} <= pieces_allowed(control)


def test_a_token_that_goes_on_behind_a_trigger_must_suit_the_grammar(controls: Controls) -> None:
    allowed = pieces_allowed(control_of(controls))
    assert b"[[a" in allowed
    assert b"[[Z" not in allowed


def test_free_text_follows_a_call_if_others_may(controls: Controls) -> None:
    control = control_of(controls)
    draft = encode("Zz[[ab]] \n[[c]]Z")
    assert control.permitted(draft) == len(draft)
    for token in draft:
        control.advance(token)
    assert control.finished is None
    assert END in allowed_of(control)


def test_nothing_follows_the_only_call(controls: Controls) -> None:
    control = control_of(controls, parallel=False)
    draft = encode("Zz[[ab]]")
    assert control.permitted([*draft, one(b"a")]) == len(draft)
    for token in draft:
        control.advance(token)
    assert control.finished == "end of the tool call"


def test_a_call_that_must_come_has_nothing_but_a_few_blanks_in_front(controls: Controls) -> None:
    control = control_of(controls, required=True)
    allowed = pieces_allowed(control)
    assert {b"[[", b"[", b"\n\n", b" "} <= allowed
    assert not {b"a", b"<|end|>", b"x[["} & allowed
    assert control.permitted([one(b"\n\n")] * 5) == 2
    assert control.permitted([one(b"\n\n"), one(b"[["), one(b"a")]) == 3
    control.advance(one(b"[["))
    assert b" " not in pieces_allowed(control)


@pytest.mark.parametrize("seed", range(20))
def test_every_walk_through_a_call_that_must_come_begins_with_one(
    controls: Controls, seed: int
) -> None:
    calls = Calls(("[[",), CALL, required=True, parallel=False)
    text = text_of(walked(controls, ControlSpec(calls=calls), seed)).strip()
    assert text[:2] == b"[["
    assert text[-2:] == b"]]"
    assert text[2:-2].isalpha()


def test_a_special_token_can_be_a_trigger(controls: Controls) -> None:
    grammar = Grammar("lark", 'start: <|mark|> /[a-z]/ "]]"')
    spec = ControlSpec(calls=Calls(("<|mark|>",), grammar))
    assert controls.check(spec) == []
    control = controls.control(spec)
    draft = [one(b"Z"), MARK, one(b"a"), one(b"]]"), one(b"Z")]
    assert control.permitted(draft) == len(draft)
    for token in draft[:2]:
        control.advance(token)
    assert b"Z" not in pieces_allowed(control)
