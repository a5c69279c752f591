"""A small vocabulary: every byte, some longer texts, tags, and two special tokens."""

import random

import numpy as np

from surefoot.constraints import Controls, ControlSpec
from surefoot.decoding import Control

LONGER = [
    *(b"ab", b"abc", b"bc", b"aa", b'{"', b'":', b"}}", b'"}', b"true", b"12", b"  ", b"\n\n"),
    *(b"<think>", b"</think>", b"</think>\n", b"nk>", b"nk>{", b"k>\n{", b"</", b"</think>a"),
    *(
        b"<think>\n",
        b"<t",
        b" <",
        b"[[",
        b"]]",
        b"[[a",
        b"]] x",
        b"[[Z",
        b"x[[",
        b"a]]",
        b"\xc3\xa9",
    ),
]
PIECES = [*(bytes([byte]) for byte in range(256)), *LONGER, b"<|end|>", b"<|mark|>"]
END, MARK = len(PIECES) - 2, len(PIECES) - 1
SPECIAL = frozenset({END, MARK})


def encode(text: str) -> list[int]:
    """The longest piece each time, special ones included."""
    data, tokens = text.encode(), []
    while data:
        token = max(
            (token for token, piece in enumerate(PIECES) if data.startswith(piece)),
            key=lambda token: len(PIECES[token]),
        )
        tokens.append(token)
        data = data[len(PIECES[token]) :]
    return tokens


def one(text: bytes) -> int:
    """The token with that text."""
    return PIECES.index(text)


def text_of(tokens: list[int]) -> bytes:
    return b"".join(PIECES[token] for token in tokens)


def toy_controls() -> Controls:
    return Controls(PIECES, SPECIAL, frozenset({END}), encode)


def allowed_of(control: Control, size: int = len(PIECES)) -> list[int]:
    """The tokens that a control's mask allows."""
    mask = control.allowed()
    if mask is None:
        return list(range(size))
    assert mask.dtype == np.uint32
    assert mask.shape == (-(-size // 32),)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=size)
    return [int(token) for token in np.flatnonzero(bits)]


def walked(controls: Controls, spec: ControlSpec, seed: int, most: int = 60) -> list[int]:
    """Random allowed tokens until the text ends, or there are enough; the end token is likely."""
    rng, control = random.Random(seed), controls.control(spec)
    said: list[int] = []
    while control.finished is None and len(said) < most:
        forced, allowed = list(control.forced()), allowed_of(control)
        ends = END in allowed and rng.random() < 0.3
        token = forced[0] if forced else END if ends else rng.choice(allowed)
        control.advance(token)
        said.append(token)
        if token == END:
            break
    return said
