"""From tokens to text: whole characters, no part of a stop string, and the same for any rounds."""

from collections.abc import Sequence as Series

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.decoding import Transcript
from surefoot.engine import Span
from surefoot.engine.text import TextStream
from tests.engine.playing import Asker, engine_of

STOPS = ["###", " ha ha", "é", "b", "ab\n"]

texts = st.text(alphabet="abé€😀# h\n", max_size=30)
"""Characters of one to four bytes, and what stop strings are made of."""


def stream(
    tokens: Series[bytes], stops: Series[str], rounds: Series[int], drafted: Series[bool] = ()
) -> list[list[Span]]:
    """What a stream shows round by round, the last round being the end.

    Args:
        tokens: the texts of the tokens.
        stops: stop strings.
        rounds: how many tokens each round brings; the last one brings the rest.
        drafted: for each token whether it was.
    """
    transcript = Transcript(stops)
    reader = TextStream(transcript, lambda token: tokens[token])
    flags = [*drafted, *[False] * len(tokens)]
    shown: list[list[Span]] = []
    at = 0
    for width in [*rounds, len(tokens)]:
        for token in range(at, min(at + width, len(tokens))):
            if not transcript.stopped:
                transcript.append(tokens[token])
                reader.append(token, drafted=flags[token])
        at += width
        over = at >= len(tokens) or transcript.stopped
        shown.append(reader.read(final=over))
        if over:
            break
    return shown


def joined(shown: list[list[Span]]) -> str:
    return "".join(span.text for spans in shown for span in spans)


def cut_at_first_stop(text: bytes, stops: Series[str]) -> str:
    """What is to be shown of a text: up to the stop string that is complete first."""
    for end in range(len(text) + 1):
        starts = [end - len(s.encode()) for s in stops if text[:end].endswith(s.encode())]
        if starts:
            return text[: min(starts)].decode(errors="replace")
    return text.decode(errors="replace")


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[list[bytes], list[int]]:
    """A text cut into tokens anywhere, inside characters too, and the tokens dealt to rounds."""
    data = draw(texts).encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    tokens = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return tokens, draw(st.lists(st.integers(1, 6), max_size=8))


@given(cut_texts(), st.lists(st.sampled_from(STOPS), max_size=3))
def test_any_cut_into_tokens_and_rounds_shows_the_same_text(
    case: tuple[list[bytes], list[int]], stops: list[str]
) -> None:
    tokens, rounds = case
    assert joined(stream(tokens, stops, rounds)) == cut_at_first_stop(b"".join(tokens), stops)


@given(cut_texts(), st.lists(st.sampled_from(STOPS), max_size=3))
def test_no_delta_has_part_of_a_character_or_of_a_stop_string(
    case: tuple[list[bytes], list[int]], stops: list[str]
) -> None:
    """What has been shown is never taken back, and holds nothing that it should not."""
    tokens, rounds = case
    right = cut_at_first_stop(b"".join(tokens), stops)
    so_far = ""
    for spans in stream(tokens, stops, rounds):
        so_far += "".join(span.text for span in spans)
        assert right.startswith(so_far)
        assert all(span.text for span in spans)
    assert "\ufffd" not in right.rstrip("\ufffd")


@given(st.binary(max_size=24), st.lists(st.integers(1, 5), max_size=6))
def test_bytes_that_are_no_text_become_replacement_characters_in_any_cut(
    data: bytes, rounds: list[int]
) -> None:
    tokens = [data[at : at + 1] for at in range(len(data))]
    assert joined(stream(tokens, [], rounds)) == data.decode(errors="replace")


@given(cut_texts(), st.lists(st.booleans(), min_size=13, max_size=13), st.sampled_from(STOPS))
def test_each_character_is_flagged_as_the_token_that_completed_it(
    case: tuple[list[bytes], list[int]], drafted: list[bool], stop: str
) -> None:
    tokens, rounds = case
    flags: list[bool] = []
    data = b""
    for token, flag in zip(tokens, drafted, strict=False):
        before = len(data.decode(errors="ignore"))
        data += token
        flags += [flag] * (len(data.decode(errors="ignore")) - before)
    shown = [
        (character, span.drafted)
        for spans in stream(tokens, [stop], rounds, drafted)
        for span in spans
        for character in span.text
    ]
    right = cut_at_first_stop(data, [stop])
    assert shown == list(zip(right, flags, strict=False))[: len(right)]


def test_text_that_may_begin_a_stop_string_waits_until_it_is_clear() -> None:
    """Case E5: a stop string over several rounds, and one that turns out not to be one."""
    shown = stream([b"a#", b"#", b"b", b"##", b"#c"], ["###"], [1, 1, 1, 1])
    assert [joined([spans]) for spans in shown] == ["a", "", "##b", "", ""]


def test_a_character_in_pieces_appears_with_its_last_piece() -> None:
    euro = "€".encode()
    shown = stream([b"x", euro[:1], euro[1:2], euro[2:], b"y"], [], [1, 1, 1, 1])
    assert [joined([spans]) for spans in shown] == ["x", "", "", "€", "y"]


def test_a_character_that_is_never_completed_is_shown_at_the_end() -> None:
    shown = stream([b"x", "€".encode()[:2]], [], [1, 1], [False, True])
    assert shown == [[Span("x", False)], [Span("\ufffd", True)]]
    late = stream([b"x", "€".encode()[:2], b""], [], [1, 1, 1], [False, True, False])
    assert late == [[Span("x", False)], [], [Span("\ufffd", True)]]


# The same through the engine, in drafts


@pytest.mark.parametrize("depth", [0, 1, 4, 16])
def test_a_stop_string_ends_a_text_at_the_token_that_completes_it(depth: int) -> None:
    asker = Asker("hybrid")
    prompt = [300, 301]
    engine, runtime = engine_of("hybrid", asker.drafter([prompt], lambda _: True), depth)
    tokens = asker.says(prompt)
    pieces = [runtime.tokenizer.piece(token).decode() for token in tokens]
    text = "".join(pieces)
    for first in range(2, 14):
        for stop in ("".join(pieces[first : first + 3]), pieces[first][1:3], text[first * 4 :][:6]):
            at = text.index(stop)
            generation = engine.run(asker.request(prompt, stops=(stop,)))
            assert generation.text == text[:at]
            assert generation.finish == ("stop", "stop string")
            needed = next(
                n for n in range(len(pieces)) if len("".join(pieces[:n])) >= at + len(stop)
            )
            assert generation.tokens == tokens[:needed]
