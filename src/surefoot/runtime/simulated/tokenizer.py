"""The simulated tokenizer: letters or bytes, made-up words, characters split over two tokens."""

import itertools
import re

_CONSONANTS = "bdfghjklmnprstvwz"
_VOWELS = "aeiou"
_START = "<|im_start|>"
_END = "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{_START}{{{{ message.role }}}}\n{{{{ message.content }}}}{_END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{_START}assistant\n{{% endif %}}"
)
"""ChatML; the tokens it writes exist in vocabularies of 32 and more."""

BYTES_FROM = 300
"""Vocabularies of this size and more hold all single bytes, so that any text can be encoded."""


class SimulatedTokenizer:
    """Text to tokens and back for a vocabulary of any size from 4 on.

    The last id ends generation and the one before it begins a message (in vocabularies of 32 and
    more). Small vocabularies are letters; those of 13 and more also have the two halves of "é".
    From `BYTES_FROM` on ids 0 to 255 are the single bytes, and words follow, each with a space
    before it.

    Attributes:
        vocabulary_size: how many ids there are.
        end_of_generation: the id that ends a text.
        control: ids without text.
        common: ids that the toy language likes to use.
        successors: ids that nearly always have the same successor: first halves of characters.
    """

    def __init__(self, vocabulary_size: int) -> None:
        if vocabulary_size < 4:
            raise ValueError("a simulated vocabulary needs at least 4 tokens")
        self.vocabulary_size = vocabulary_size
        special = [_START, _END] if vocabulary_size >= 32 else [_END]
        plain = vocabulary_size - len(special)
        self._special = {text: plain + index for index, text in enumerate(special)}
        self._special_pattern = re.compile("|".join(re.escape(text) for text in special))
        self._pieces = _plain_pieces(plain) + [b""] * len(special)
        self._ids = {piece: token for token, piece in enumerate(self._pieces[:plain])}
        self._longest = max(map(len, self._ids))
        self.end_of_generation = frozenset({self._special[_END]})
        self.control = frozenset(self._special.values())
        first, second = self._ids.get(b"\xc3"), self._ids.get(b"\xa9")
        self.successors: dict[int, int] = {}
        if first is not None and second is not None:
            self.successors[first] = second
        words = range(256 if vocabulary_size >= BYTES_FROM else 0, plain)
        self.common = tuple(sorted({*words, *self.successors} - {*self.successors.values()}))

    def encode(self, text: str, *, special: bool = True, add_special: bool = False) -> list[int]:  # noqa: ARG002 - there is nothing to add
        """Tokenize, longest piece first; bytes that a small vocabulary lacks become others."""
        tokens = []
        start = 0
        if special:
            for match in self._special_pattern.finditer(text):
                tokens += self._encode(text[start : match.start()].encode())
                tokens.append(self._special[match.group()])
                start = match.end()
        return tokens + self._encode(text[start:].encode())

    def piece(self, token: int) -> bytes:
        """A token's bytes; none for control tokens."""
        return self._pieces[token]

    def text_of(self, token: int) -> str:
        """A special token's text as it is written in prompts."""
        return next((text for text, special in self._special.items() if special == token), "")

    def _encode(self, text: bytes) -> list[int]:
        tokens = []
        at = 0
        while at < len(text):
            for end in range(min(len(text), at + self._longest), at, -1):
                if (token := self._ids.get(text[at:end])) is not None:
                    break
            else:
                token, end = text[at] % len(self._ids), at + 1
            tokens.append(token)
            at = end
        return tokens


def _plain_pieces(count: int) -> list[bytes]:
    """The texts of the plain tokens, all different."""
    if count >= BYTES_FROM - 2:
        return [bytes([byte]) for byte in range(256)] + _words(count - 256, before=b" ")
    pieces = [bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz"]
    if count >= 12:
        pieces = [b"\xc3", b"\xa9", b" ", b".", *pieces]
    return (pieces + _words(count, before=b""))[:count]


def _words(count: int, before: bytes) -> list[bytes]:
    """Made-up words of one, two or three syllables, shortest first."""
    syllables = [consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS]
    words = itertools.chain.from_iterable(
        itertools.product(syllables, repeat=length) for length in (1, 2, 3)
    )
    return [before + "".join(word).encode() for word in itertools.islice(words, count)]
