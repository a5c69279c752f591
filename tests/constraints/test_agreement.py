"""The mask, the permitted head of a draft and what can be taken tell of the same tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.constraints import Calls, Controls, ControlSpec, Grammar, Reasoning
from surefoot.decoding import Control, ControlError
from tests.constraints.toy import END, PIECES, allowed_of, encode, text_of, toy_controls

JSON = Grammar("json_object")
WORD = Grammar("gbnf", 'root ::= "<" [a-c]+ ">" | "{" root "}" | "é"')
CALL = Grammar("lark", 'start: "[[" /[a-z]{1,3}/ "]]"')
OPEN_CALL = Grammar("lark", 'start: "[[" /[a-z]+/ (" x")?')
THINK = Reasoning("<think>", "</think>")
SPECS = {
    "json": ControlSpec(JSON),
    "gbnf": ControlSpec(WORD),
    "choice": ControlSpec(Grammar("choice", '["a", "ab", "abc", "<think>"]')),
    "regex": ControlSpec(Grammar("regex", "(ab|bc)*é?")),
    "thought": ControlSpec(reasoning=THINK),
    "thought of two": ControlSpec(reasoning=Reasoning("<think>", "</think>", True, 2, "ab")),
    "thoughts of four": ControlSpec(
        reasoning=Reasoning("<think>", "</think>", False, 4, "b", again="[[think>")
    ),
    "thought, json": ControlSpec(JSON, Reasoning("<think>", "</think>", opened=True)),
    "thought or json": ControlSpec(JSON, THINK),
    "thought or gbnf": ControlSpec(WORD, Reasoning("<think>", "</think>", budget=3)),
    "thought, call": ControlSpec(reasoning=THINK, calls=Calls(("[[",), CALL, required=True)),
    "calls": ControlSpec(calls=Calls(("[[",), CALL)),
    "calls that may go on": ControlSpec(calls=Calls(("[[",), OPEN_CALL)),
    "one call": ControlSpec(calls=Calls(("[[",), CALL, required=True, parallel=False)),
    "required calls": ControlSpec(calls=Calls(("[[",), CALL, required=True)),
    "thought, calls": ControlSpec(reasoning=THINK, calls=Calls(("[[",), CALL)),
}


@pytest.fixture(scope="module")
def controls() -> Controls:
    return toy_controls()


def taken(control: Control, token: int) -> bool:
    """Whether a control takes a token; it must not be used afterwards."""
    try:
        control.advance(token)
    except ControlError:
        return False
    return True


def replayed(controls: Controls, spec: ControlSpec, said: list[int]) -> Control:
    control = controls.control(spec)
    for token in said:
        control.advance(token)
    return control


INTERESTING = [token for token, piece in enumerate(PIECES) if piece in b'<think>/[]{}abcxZ\n ": 1']
INTERESTING += range(256, len(PIECES))


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_mask_draft_and_advance_agree(controls: Controls, name: str, data: st.DataObject) -> None:
    spec = SPECS[name]
    control, said = controls.control(spec), []
    for _ in range(data.draw(st.integers(0, 10), label="length")):
        if control.finished or END in said:
            break
        token = data.draw(st.sampled_from(allowed_of(control)), label="token")
        control.advance(token)
        said.append(token)
    if END in said:
        return
    if control.finished:
        assert control.permitted([0]) == control.permitted([END]) == 0
        with pytest.raises(ControlError):
            control.advance(END)
        return
    allowed = set(allowed_of(control))
    assert allowed
    forced = list(control.forced())
    assert set(forced[:1]) <= allowed
    for token in INTERESTING:
        permitted = control.permitted([token]) == 1
        assert taken(replayed(controls, spec, said), token) == permitted, PIECES[token]
        # Where a text is forced, the mask has the one way to write it that a tokenizer would use.
        assert permitted == (token in allowed) or (permitted and forced), PIECES[token]


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=40, deadline=None)
@given(draft=st.lists(st.sampled_from(INTERESTING), max_size=8), seed=st.integers(0, 9))
def test_a_draft_is_permitted_as_far_as_its_tokens_are_allowed_one_by_one(
    controls: Controls, name: str, draft: list[int], seed: int
) -> None:
    spec = SPECS[name]
    texts = [
        b"<think>ab</think>{}",
        b"</think><think>a</think>\n\n<think>b</think>[[a]]",
        b"[[abc]]",
        b'{"ab":12}',
        b"ab[[Z",
        b"<ab>",
        b"</think>[[a]]",
    ]
    draft = [*encode(texts[seed % len(texts)].decode())[:seed], *draft]
    draft = draft[: draft.index(END) + 1] if END in draft else draft
    length = controls.control(spec).permitted(draft)
    control, count = controls.control(spec), 0
    for token in draft:
        if control.finished:
            break
        if token not in allowed_of(control) and not (
            control.forced() and control.permitted([token])
        ):
            break
        control.advance(token)
        count += 1
    assert length == count, text_of(draft)


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_asking_changes_nothing(controls: Controls, name: str, data: st.DataObject) -> None:
    spec = SPECS[name]
    asked, said = controls.control(spec), []
    for _ in range(12):
        if asked.finished or END in said:
            break
        token = data.draw(st.sampled_from(allowed_of(asked)))
        asked.permitted(encode("<think>ab</think>{}[[a]]"))
        asked.advance(token)
        said.append(token)
    unasked = replayed(controls, spec, said)
    assert unasked.finished == asked.finished
    assert unasked.reasoning_tokens == asked.reasoning_tokens
    if not asked.finished and END not in said:
        assert allowed_of(unasked) == allowed_of(asked)
