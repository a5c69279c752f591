"""The generated text: stop strings anywhere, nothing shown that is taken back."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from surefoot.decoding import Transcript

LETTERS = st.text(alphabet="ab#é", max_size=24)
STOPS = st.lists(st.text(alphabet="ab#é", min_size=1, max_size=4), max_size=3)


def pieces_of(text: bytes, cuts: list[int]) -> list[bytes]:
    """A text cut at some places, inside characters too."""
    borders = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


def before_first_stop(text: bytes, stops: list[str]) -> tuple[bytes, bool]:
    """The text before the stop string that is complete first, byte by byte."""
    for end in range(len(text) + 1):
        starts = [end - len(stop.encode()) for stop in stops if text[:end].endswith(stop.encode())]
        if starts:
            return text[: min(starts)], True
    return text, False


@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 100), max_size=8))
@example(text="aab#", stops=["ab#é", "b"], cuts=[])
@example(text="ab#é", stops=["ab#é", "#"], cuts=[])
@example(text="ab#é", stops=["ab#é", "#"], cuts=[3])
def test_what_is_shown_is_the_text_before_the_first_stop_however_it_is_cut(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    expected, stopped = before_first_stop(text.encode(), stops)
    transcript = Transcript(stops)
    shown = b""
    for piece in pieces_of(text.encode(), cuts):
        transcript.append(piece)
        more = transcript.settled(len(shown))
        shown += more
        assert transcript.text.startswith(shown), "something shown was taken back"
        if transcript.stopped:
            break
    shown += transcript.settled(len(shown), final=True)
    assert (shown, transcript.stopped) == (expected, stopped)


@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 100), max_size=8))
def test_nothing_is_held_back_that_no_stop_string_can_want(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    transcript = Transcript(stops)
    for piece in pieces_of(text.encode(), cuts):
        transcript.append(piece)
        if transcript.stopped:
            return
        held = transcript.text[len(transcript.settled(0)) :]
        starts = [stop.encode()[: len(held)] for stop in stops]
        assert held == b"" or held in starts


def test_without_stop_strings_all_is_shown_at_once() -> None:
    transcript = Transcript()
    transcript.append(b"half a charact\xc3")
    assert transcript.settled(0) == b"half a charact\xc3"
    assert not transcript.stopped


@pytest.mark.parametrize("width", [1, 2, 3, 16])
def test_a_stop_string_is_found_over_pieces_of_any_width(width: int) -> None:
    text = b"one two ### three ### four"
    transcript = Transcript(["###"])
    for start in range(0, len(text), width):
        transcript.append(text[start : start + width])
        if transcript.stopped:
            break
    assert transcript.text == b"one two "
