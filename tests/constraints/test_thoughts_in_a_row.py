"""Where reasoning ends, begins again and is over: the control and the parser say the same."""

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.chat.formats import FORMATS, CallArguments, ContentDelta, ReasoningDelta
from surefoot.constraints import Calls, Controls, ControlSpec, Grammar, Reasoning
from tests.constraints.toy import encode, one, text_of, toy_controls

START, END_TAG = "<think>", "</think>"
BLANKS = " \t\n\r\v\f"
CALLS = Calls(("<tool_call>",), Grammar("lark", 'start: "<tool_call>" /[a-z]/ "</tool_call>"'))
FRAGMENTS = st.lists(
    st.sampled_from([START, END_TAG, "a", "b c", " ", "\n\n", "<", "</thi", "\u00a0", "é"]),
    max_size=9,
)


def split(text: str, *, opened: bool, bound: bool) -> tuple[list[str], str]:
    """The thoughts in a text, and what follows them, by the rule."""
    thoughts: list[str] = []
    at, tagged, inside = 0, opened, opened
    while True:
        if inside:
            end = text.find(END_TAG, at)
            if end < 0:
                return [*thoughts, text[at:]], ""
            thoughts.append(text[at:end])
            at, inside = end + len(END_TAG), False
        tags = START if bound else f"{START}|{END_TAG}"
        tag = None if bound and thoughts else re.compile(rf"[{BLANKS}]*({tags})").match(text, at)
        if tag is None:
            return thoughts, text[at:].lstrip(BLANKS) if tagged else text[at:]
        at, tagged, inside = tag.end(), True, tag[1] == START


def told(text: str, cuts: list[int], *, opened: bool, bound: bool) -> tuple[str, str]:
    """Reasoning and content that the parser finds."""
    parser = FORMATS["none"].parser([], reasoning=True, opened=opened, calls=False, bound=bound)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    events = []
    for start, end in pairwise(places):
        events += parser.feed(text[start:end])
    events += parser.finish()
    assert not any(isinstance(event, CallArguments) for event in events)
    return (
        "".join(event.text for event in events if isinstance(event, ReasoningDelta)),
        "".join(event.text for event in events if isinstance(event, ContentDelta)),
    )


@pytest.fixture(scope="module")
def controls() -> Controls:
    return toy_controls()


def bytewise() -> Controls:
    """A vocabulary of bytes, so that tokens can be counted."""
    pieces = [*(bytes([byte]) for byte in range(256)), b"<|end|>"]
    return Controls(pieces, frozenset({256}), frozenset({256}), lambda text: [*text.encode()])


BYTES = bytewise()


@settings(max_examples=400, deadline=None)
@given(FRAGMENTS, st.lists(st.integers(0, 99), max_size=5), st.booleans())
def test_the_parser_goes_by_the_rule_for_any_cut(
    fragments: list[str], cuts: list[int], opened: bool
) -> None:
    text = "".join(fragments)
    for bound in (False, True):
        thoughts, answer = split(text, opened=opened, bound=bound)
        reasoning, content = told(text, cuts, opened=opened, bound=bound)
        full = [thought for thought in thoughts if thought.strip(BLANKS)]
        assert reasoning == "".join(full).lstrip(BLANKS)
        assert content == answer


@settings(max_examples=400, deadline=None)
@given(FRAGMENTS, st.booleans(), st.booleans())
def test_the_control_counts_by_the_rule(fragments: list[str], opened: bool, called: bool) -> None:
    text = "".join(fragments)
    thoughts, _ = split(text, opened=opened, bound=False)
    reasoning = Reasoning(START, END_TAG, opened=opened)
    control = BYTES.control(ControlSpec(reasoning=reasoning, calls=CALLS if called else None))
    assert control.permitted([*text.encode()]) == len(text.encode())
    for byte in text.encode():
        control.advance(byte)
    assert control.reasoning_tokens == sum(len(thought.encode()) for thought in thoughts)


@settings(max_examples=200, deadline=None)
@given(FRAGMENTS, st.integers(0, 4), st.booleans(), st.integers(0, 99))
def test_one_budget_holds_for_all_thoughts_of_a_text(
    fragments: list[str], budget: int, opened: bool, seed: int
) -> None:
    """What a model would say, with the ends that are forced upon it: never more is thought."""
    rng = random.Random(seed)
    reasoning = Reasoning(START, END_TAG, opened=opened, budget=budget)
    control = BYTES.control(ControlSpec(reasoning=reasoning))
    wanted, said = [*"".join(fragments).encode()], list[int]()
    while wanted and len(said) < 400:
        forced = list(control.forced())
        token = forced[0] if forced else wanted.pop(0)
        control.advance(token)
        said.append(token)
        if forced and rng.random() < 0.1:
            wanted[:0] = START.encode()  # it would not stop
    while forced := list(control.forced()):
        control.advance(forced[0])
        said.append(forced[0])
    text = bytes(said).decode("latin-1")  # a character for each byte
    thoughts, answer = split(text, opened=opened, bound=False)
    assert control.reasoning_tokens == sum(map(len, thoughts)) <= budget
    assert told(text, [seed], opened=opened, bound=False)[1] == answer


def test_a_budget_of_none_closes_a_second_thought_at_once(controls: Controls) -> None:
    reasoning = Reasoning(START, END_TAG, opened=True, budget=0, message="!")
    control = controls.control(ControlSpec(reasoning=reasoning))
    assert text_of(list(control.forced())) == b"!</think>"
    for token in list(control.forced()):
        control.advance(token)
    for text in (b"\n\n", b"<think>"):
        assert list(control.forced()) == []
        control.advance(one(text))
    assert text_of(list(control.forced())) == b"</think>", "the message comes once"
    assert control.permitted(encode("a")) == 0
    for token in list(control.forced()):
        control.advance(token)
    for token in encode("So.<think>ab"):
        control.advance(token)
    assert list(control.forced()) == [], "reasoning does not stand behind the answer"
    assert control.reasoning_tokens == 0


def test_a_call_behind_a_second_thought_is_held_to_its_grammar(controls: Controls) -> None:
    control = controls.control(
        ControlSpec(reasoning=Reasoning(START, END_TAG, opened=True), calls=CALLS)
    )
    thought = encode("a</think>\n\n</think><think>b</think>\n")
    assert control.permitted([*thought, *encode("<tool_call>aZ")]) == len(thought) + len(
        encode("<tool_call>a")
    )
    for token in thought:
        control.advance(token)
    assert control.reasoning_tokens == 2
    for token in encode("<tool_call>"):
        control.advance(token)
    assert control.permitted(encode("Z")) == 0


def test_where_rules_hold_for_the_answer_they_hold_from_the_first_end_tag_on(
    controls: Controls,
) -> None:
    grammar = Grammar("regex", "<think>[a-z]+</think>!")
    control = controls.control(ControlSpec(grammar, Reasoning(START, END_TAG, opened=True)))
    text = "ab</think><think>ab</think>!"
    for token in encode(text):
        control.advance(token)
    assert control.finished == "end of the grammar"
    assert control.reasoning_tokens == 1
    assert told(text, [3, 12], opened=True, bound=True) == ("ab", "<think>ab</think>!")


def test_harmony_begins_a_second_thought_with_a_header_of_its_own() -> None:
    tags = FORMATS["harmony"].reasoning
    assert tags is not None
    reasoning = Reasoning(tags.start, tags.end, opened=True, budget=3, again=tags.again)
    control = BYTES.control(ControlSpec(reasoning=reasoning))
    head = b"<|start|>assistant<|channel|>analysis<|message|>"
    for byte in b"ab<|end|>" + head + b"c":
        control.advance(byte)
    assert control.reasoning_tokens == 3
    assert bytes(control.forced()) == b"<|end|>"
    parser = FORMATS["harmony"].parser([], reasoning=True, opened=True, calls=False)
    events = parser.feed(f"ab<|end|>{head.decode()}c<|end|>")
    assert [type(event) for event in events] == [ReasoningDelta] * 2
