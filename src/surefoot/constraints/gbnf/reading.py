"""Reading GBNF as llama.cpp does, with its limits, and saying where it is wrong."""

from collections.abc import Callable

from surefoot.constraints.errors import GrammarError
from surefoot.constraints.gbnf.nodes import (
    LAST_CHARACTER,
    Chain,
    Characters,
    Either,
    Node,
    Range,
    Reference,
    Repeat,
    Rules,
    Token,
    characters,
)

MOST_REPETITIONS = 2000
"""Repetitions inside each other may not come to more; a greater upper limit counts as none."""

DEEPEST = 100
"""So many groups may lie inside each other."""

ROOT = "root"

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"} | {sign: sign for sign in '\\"[]-'}
_HEX = {"x": 2, "u": 4, "U": 8}

TokenNamed = Callable[[str], int | None]
"""The token that has a text such as `<think>`; None if there is no single one."""


class Reader:
    """Reads one grammar.

    Args:
        source: the grammar.
        token_named: knows the model's tokens by their text.
        tokens: how many there are.
    """

    def __init__(self, source: str, token_named: TokenNamed, tokens: int) -> None:
        self._source = source
        self._token_named = token_named
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self.places: dict[str, int] = {}
        """Where rules are named first, as offsets."""

    def rules(self) -> Rules:
        """All rules; one that is written twice counts as it is written last.

        Raises:
            GrammarError: the text is no GBNF.
        """
        rules: Rules = {}
        self._skip(newlines=True)
        while self._at < len(self._source):
            name = self._name()
            self._skip(newlines=False)
            if not self._source.startswith("::=", self._at):
                raise self._error(f'expected "::=" behind the rule\'s name {name!r}')
            self._at += 3
            self._skip(newlines=True)
            rules[name], _ = self._either(nested=False)
            if self._sign not in ("", "\r", "\n"):
                raise self._error(f"{self._sign!r} is not expected here")
            self._skip(newlines=True)
        return rules

    def error(self, offset: int, problem: str) -> GrammarError:
        """Something wrong at a place of the text."""
        line = self._source.count("\n", 0, offset) + 1
        column = offset - self._source.rfind("\n", 0, offset)
        return GrammarError("grammar", f"is no valid GBNF: line {line}, column {column}: {problem}")

    def _error(self, problem: str) -> GrammarError:
        return self.error(self._at, problem)

    @property
    def _sign(self) -> str:
        return self._source[self._at : self._at + 1]

    def _skip(self, *, newlines: bool) -> None:
        blanks = " \t\r\n" if newlines else " \t"
        while self._sign and (self._sign in blanks or self._sign == "#"):
            if self._sign == "#":
                while self._sign and self._sign not in "\r\n":
                    self._at += 1
            else:
                self._at += 1

    def _name(self) -> str:
        start = self._at
        while self._sign and self._sign.isascii() and (self._sign.isalnum() or self._sign in "-_"):
            self._at += 1
        if start == self._at:
            found = repr(self._sign) if self._sign else "the end"
            raise self._error(f"expected a rule's name, found {found}")
        name = self._source[start : self._at]
        self.places.setdefault(name, start)
        return name

    # What a rule says; each of these returns a node and how often its repetitions repeat

    def _either(self, *, nested: bool) -> tuple[Node, int]:
        options = [self._chain(nested=nested)]
        while self._sign == "|":
            self._at += 1
            self._skip(newlines=True)
            options.append(self._chain(nested=nested))
        weight = sum(weight for _, weight in options)
        if len(options) == 1:
            return options[0]
        return Either(tuple(option for option, _ in options)), weight

    def _chain(self, *, nested: bool) -> tuple[Node, int]:
        parts: list[Node] = []
        weights: list[int] = []
        repeatable = False
        while True:
            start, sign = self._at, self._sign
            if sign and sign in "*+?{":
                if not repeatable:
                    raise self._error(f"there is nothing in front of {sign!r} to be repeated")
                least, most = self._times(nested=nested)
                weights[-1] *= max(1, least if most is None else most)
                if weights[-1] > MOST_REPETITIONS:
                    raise self.error(
                        start, f"repetitions come to more than {MOST_REPETITIONS}; allow fewer"
                    )
                parts[-1] = Repeat(parts[-1], least, most)
            else:
                part = self._part(nested=nested)
                if part is None:
                    break
                parts.append(part[0])
                weights.append(part[1])
                repeatable = part[0] != Chain(())
            self._skip(newlines=nested)
        return (parts[0] if len(parts) == 1 else Chain(tuple(parts))), max(1, sum(weights))

    def _part(self, *, nested: bool) -> tuple[Node, int] | None:
        match self._sign:
            case '"':
                return self._literal(), 1
            case "[":
                return self._set(), 1
            case ".":
                self._at += 1
                return Characters(characters([], negated=True).ranges), 1
            case "(":
                return self._group()
            case "<" | "!":
                return self._token(), 1
            case "" | "|" | ")" | "\r" | "\n":
                return None
            case sign if sign.isascii() and (sign.isalnum() or sign in "-_"):
                return Reference(self._name()), 1
        if nested:
            raise self._error(f"{self._sign!r} is not expected here")
        return None

    def _group(self) -> tuple[Node, int]:
        opened = self._at
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error(f"more than {DEEPEST} groups inside each other")
        self._at += 1
        self._skip(newlines=True)
        node, weight = self._either(nested=True)
        if self._sign != ")":
            raise self.error(opened, "this group is not closed")
        self._at += 1
        self._depth -= 1
        # A group around nothing is something that can be repeated, other than "".
        return (node if node != Chain(()) else Either((node,))), weight

    def _literal(self) -> Node:
        opened = self._at
        self._at += 1
        said: list[Node] = []
        while self._sign != '"':
            code = self._character(opened, "text")
            said.append(characters([(code, code)]))
        self._at += 1
        return said[0] if len(said) == 1 else Chain(tuple(said))

    def _set(self) -> Node:
        opened = self._at
        self._at += 1
        negated = self._sign == "^"
        self._at += negated
        ranges: list[Range] = []
        while self._sign != "]":
            start = self._at
            low = high = self._character(opened, "set")
            if self._sign == "-" and self._source[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._character(opened, "set")
                if high < low:
                    raise self.error(start, "the range ends before it begins")
            ranges.append((low, high))
        self._at += 1
        return characters(ranges, negated=negated) if ranges else Chain(())

    def _character(self, opened: int, what: str) -> int:
        sign = self._sign
        if not sign:
            raise self.error(opened, f"this {what} is not closed")
        start = self._at
        self._at += 1
        if sign != "\\":
            return ord(sign)
        kind = self._sign
        self._at += 1
        if kind in _ESCAPES:
            return ord(_ESCAPES[kind])
        if kind not in _HEX:
            raise self.error(start, f"there is no escape \\{kind}")
        digits = self._source[self._at : self._at + _HEX[kind]]
        if len(digits) < _HEX[kind] or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise self.error(start, f"\\{kind} needs {_HEX[kind]} hexadecimal digits")
        self._at += len(digits)
        code = int(digits, 16)
        if code > LAST_CHARACTER or 0xD800 <= code <= 0xDFFF:
            raise self.error(start, f"\\{kind}{digits} is no character")
        return code

    def _token(self) -> Node:
        start = self._at
        negated = self._sign == "!"
        self._at += negated
        end = self._source.find(">", self._at)
        if self._sign != "<" or end < 0:
            raise self.error(start, "a token is written <text> or <[id]>")
        text = self._source[self._at : end + 1]
        if text.startswith("<["):
            digits = text[2:-2]
            if not text.endswith("]>") or not digits.isdecimal() or len(digits) > 9:
                raise self.error(start, "a token's id is written <[id]>")
            token: int | None = int(digits)
        else:
            token = self._token_named(text)
        if token is None or token >= self._tokens:
            raise self.error(start, f"the model has no token {text}")
        self._at = end + 1
        return Token(token, negated)

    def _times(self, *, nested: bool) -> tuple[int, int | None]:
        sign = self._sign
        self._at += 1
        if sign != "{":
            return (1, None) if sign == "+" else (0, None if sign == "*" else 1)
        start = self._at
        self._skip(newlines=nested)
        least = self._number()
        most: int | None = least
        self._skip(newlines=nested)
        if self._sign == ",":
            self._at += 1
            self._skip(newlines=nested)
            most = self._number() if self._sign.isdecimal() else None
            self._skip(newlines=nested)
        if self._sign != "}":
            raise self._error("expected , or } in a repetition")
        self._at += 1
        if least > MOST_REPETITIONS:
            raise self.error(start, f"more than {MOST_REPETITIONS} repetitions; allow fewer")
        if most is not None and most > MOST_REPETITIONS:
            most = None
        if most is not None and most < least:
            raise self.error(start, "the most is less than the least")
        return least, most

    def _number(self) -> int:
        start = self._at
        while self._sign and self._sign in "0123456789":
            self._at += 1
        digits = self._source[start : self._at]
        if not digits or len(digits) > 9:
            raise self.error(start, "expected a number of repetitions")
        return int(digits)
