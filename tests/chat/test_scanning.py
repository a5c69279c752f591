"""A tag is found wherever a text is cut, and nothing that may become one is told too early."""

import pytest

from surefoot.chat.formats.scanning import TagScanner

TAGS = ("<a", "<a>", "<b>")


def scanned(pieces: list[str]) -> list[tuple[str, str | None]]:
    """Texts and tags; texts that follow each other are one."""
    scanner = TagScanner()
    found: list[tuple[str, str | None]] = []
    front = ""
    for piece in pieces:
        rest = piece
        while rest:
            text, tag, rest = scanner.feed(rest, TAGS)
            front += text
            if tag is not None:
                found.append((front, tag))
                front = ""
    return [*found, (front + scanner.rest(), None)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x<a>y", [("x", "<a>"), ("y", None)]),
        ("x<ay", [("x", "<a"), ("y", None)]),
        ("<<b>>", [("<", "<b>"), (">", None)]),
        ("<b", [("<b", None)]),
        ("", [("", None)]),
    ],
)
def test_the_longest_tag_is_found_for_any_cut(
    text: str, expected: list[tuple[str, str | None]]
) -> None:
    for at in range(len(text) + 1):
        assert scanned([text[:at], text[at:]]) == expected
    assert scanned(list(text)) == expected


def test_text_that_is_certain_is_told_at_once() -> None:
    scanner = TagScanner()
    assert scanner.feed("abc<", TAGS) == ("abc", None, "")
    assert scanner.feed("c", TAGS) == ("<c", None, "")
