"""Thoughts end where their tag or their budget says, and the answer begins right there."""

import pytest

from surefoot.constraints import Calls, Controls, ControlSpec, Grammar, Reasoning
from surefoot.decoding import Control, ControlError
from tests.constraints.toy import END, PIECES, allowed_of, encode, one, text_of, toy_controls

JSON = Grammar("json_object")
OPENED = Reasoning("<think>", "</think>", opened=True)


@pytest.fixture(scope="module")
def controls() -> Controls:
    return toy_controls()


def say(control: Control, *texts: bytes) -> None:
    for text in texts:
        control.advance(one(text))


def pieces_allowed(control: Control) -> set[bytes]:
    return {PIECES[token] for token in allowed_of(control)}


def test_a_draft_is_permitted_through_the_tag_as_far_as_the_grammar_goes(
    controls: Controls,
) -> None:
    """Case G1."""
    control = controls.control(ControlSpec(JSON, OPENED))
    assert control.permitted([*encode("ab"), one(b"</think>"), *encode("```json")]) == 2
    assert control.permitted([one(b"</think>"), *encode("```json")]) == 1
    assert control.permitted([one(b"</think>"), one(b"\n\n"), one(b'{"'), one(b"x")]) == 4


@pytest.mark.parametrize("tag", [[b"</", b"t", b"hi", b"nk>"], [b"</", b"t", b"h", b"i", b"nk>{"]])
def test_a_tag_may_lie_across_tokens_and_bring_more_text(
    controls: Controls, tag: list[bytes]
) -> None:
    """Case G1: what comes with the tag is the answer's beginning."""
    control = controls.control(ControlSpec(JSON, OPENED))
    for piece in tag[:-1]:
        for byte in piece if piece not in PIECES else [one(piece)]:
            control.advance(byte)
    assert b"nk>{" in pieces_allowed(control)
    assert b"</think>a" not in pieces_allowed(control)
    control.advance(one(tag[-1]))
    allowed = pieces_allowed(control)
    assert (b'{"' in allowed) == (tag[-1] == b"nk>")
    assert (b'"' in allowed) == (tag[-1] == b"nk>{")
    assert control.reasoning_tokens == 0


def test_a_token_whose_rest_the_grammar_refuses_is_refused(controls: Controls) -> None:
    control = controls.control(ControlSpec(JSON, OPENED))
    allowed = pieces_allowed(control)
    assert b"</think>a" not in allowed
    assert b"</think>\n" in allowed
    with pytest.raises(ControlError):
        control.advance(one(b"</think>a"))


@pytest.mark.parametrize("budget", [0, 1, 16])
def test_the_end_is_forced_right_behind_the_budget(controls: Controls, budget: int) -> None:
    """Case H5."""
    reasoning = Reasoning("<think>", "</think>", opened=True, budget=budget, message="\n.")
    control = controls.control(ControlSpec(JSON, reasoning))
    assert control.permitted([one(b"a")] * 40) == budget
    for _ in range(budget):
        assert list(control.forced()) == []
        say(control, b"a")
    assert text_of(list(control.forced())) == b"\n.</think>"
    assert len(allowed_of(control)) == 1
    with pytest.raises(ControlError):
        control.advance(one(b"a"))
    while (
        control.forced()
        and control.reasoning_tokens == budget
        and text_of(list(control.forced())).endswith(b"</think>")
    ):
        control.advance(control.forced()[0])
    assert control.reasoning_tokens == budget
    assert b"{" in pieces_allowed(control)


def test_a_thought_that_ends_by_itself_is_not_forced(controls: Controls) -> None:
    reasoning = Reasoning("<think>", "</think>", opened=True, budget=3)
    control = controls.control(ControlSpec(reasoning=reasoning))
    say(control, b"a", b"b", b"</think>", b"c", b"c", b"c")
    assert list(control.forced()) == []
    assert control.reasoning_tokens == 2


def test_the_tokens_of_a_tag_are_not_counted(controls: Controls) -> None:
    control = controls.control(ControlSpec(reasoning=OPENED))
    say(control, b"a", b"</", b"t", b"h", b"i")
    assert control.reasoning_tokens == 5
    say(control, b"nk>")
    assert control.reasoning_tokens == 1


def test_a_budget_that_ends_inside_the_tag_forces_the_rest_of_it() -> None:
    pieces = [*PIECES[:256], b"<|end|>"]  # no token is a whole tag
    controls = Controls(pieces, frozenset({256}), frozenset({256}), lambda text: [*text.encode()])
    reasoning = Reasoning("<think>", "</think>", opened=True, budget=4, message="!")
    control = controls.control(ControlSpec(reasoning=reasoning))
    for byte in b"ab</":
        control.advance(byte)
    assert bytes(control.forced()) == b"think>"
    for byte in b"think>":
        control.advance(byte)
    assert control.reasoning_tokens == 2
    assert list(control.forced()) == []


@pytest.mark.parametrize(
    ("said", "thinks"),
    [
        ([b"<think>"], True),
        ([b"\n", b"<t", b"h", b"i", b"nk>"], True),
        ([b"<think>\n"], True),
        ([b"{"], False),
        ([b"\n", b"{"], False),
    ],
)
def test_the_answer_may_begin_with_a_thought_or_without(
    controls: Controls, said: list[bytes], thinks: bool
) -> None:
    control = controls.control(ControlSpec(JSON, Reasoning("<think>", "</think>")))
    tokens = [one(text) for text in said]
    assert control.permitted(tokens) == len(tokens)
    say(control, *said)
    assert (b"a" in pieces_allowed(control)) == thinks
    if thinks:
        say(control, b"a", b"</think>", b"\n\n")
        assert b"{" in pieces_allowed(control)
        assert b"a" not in pieces_allowed(control)


def test_a_start_tag_does_not_use_up_what_the_grammar_shares_with_it(controls: Controls) -> None:
    grammar = Grammar("choice", '["<a", "<b"]')
    control = controls.control(ControlSpec(grammar, Reasoning("<think>", "</think>")))
    say(control, b"<", b"t", b"h", b"i", b"nk>", b"</think>", b"<", b"b")
    assert control.finished == "end of the grammar"
    control = controls.control(ControlSpec(grammar, Reasoning("<think>", "</think>")))
    say(control, b"<", b"b")
    assert control.finished == "end of the grammar"


@pytest.mark.parametrize("required", [True, False])
def test_a_thought_may_end_the_text_only_if_no_answer_is_due(
    controls: Controls, required: bool
) -> None:
    calls = Calls(("[[",), Grammar("lark", 'start: "[[" /[a-z]/ "]]"'), required=required)
    for spec in (ControlSpec(calls=calls, reasoning=OPENED),):
        control = controls.control(spec)
        assert (END in allowed_of(control)) == (not required)
        assert control.permitted([END]) == (0 if required else 1)
    assert END not in allowed_of(controls.control(ControlSpec(JSON, OPENED)))
    assert END in allowed_of(controls.control(ControlSpec(reasoning=OPENED)))
