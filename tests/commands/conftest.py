"""Running `surefoot` in the test's own process."""

import io
import re
from typing import NamedTuple

import pytest

from surefoot.cli import main

ONE_THREAD = ["--threads", "1"]


class Ended(NamedTuple):
    """A command that has run."""

    code: int
    out: str
    err: str

    @property
    def problem(self) -> str:
        """The one line on stderr that says what is wrong, without its beginning."""
        assert self.code in (1, 2)
        assert self.out == ""
        [line] = self.err.splitlines()
        prefix = "surefoot: error: "
        assert line.startswith(prefix)
        return line.removeprefix(prefix)


class Terminal(io.TextIOWrapper):
    """A stream that says that somebody sits behind it."""

    def isatty(self) -> bool:
        return True


class Command:
    """Runs `surefoot` with arguments, with one thread where a model is loaded."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: bytes | None = b"") -> Ended:
        """Run a command; stdin is a terminal if it is None."""
        given = Terminal(io.BytesIO()) if stdin is None else io.TextIOWrapper(io.BytesIO(stdin))
        self._monkeypatch.setattr("sys.stdin", given)
        self._capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as ended:  # as argparse does
            code = int(str(ended.code))
        return Ended(code, *self._capsys.readouterr())

    def run(self, *arguments: str, stdin: bytes | None = b"") -> Ended:
        return self("run", *ONE_THREAD, *arguments, stdin=stdin)

    def bench(self, *arguments: str) -> Ended:
        return self("bench", *ONE_THREAD, *arguments)


@pytest.fixture
def surefoot(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Command(capsys, monkeypatch)


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
