"""`surefoot run` as a process: Ctrl-C, readers that go away, and streams that can't be written."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import ONE_THREAD

COMMAND = [
    sys.executable,
    "-c",
    "from surefoot.cli import main; raise SystemExit(main())",
    "run",
    *ONE_THREAD,
]
ENDLESS = ["--raw", "--temp", "1.5", "--seed", "1", "--spec-type", "none", "-c", "4096"]
"""A text that goes on for seconds."""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )


def interrupted(*arguments: str) -> tuple[int, str, str]:
    """Start a run, interrupt it once its first text has come; exit code, stdout, stderr."""
    with start(*arguments) as process:
        assert process.stdout is not None
        first = process.stdout.read(8)
        assert first
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return process.returncode, (first + out).decode(errors="replace"), err.decode()


def test_ctrl_c_ends_with_the_text_so_far_and_the_figures() -> None:
    code, out, err = interrupted(*ENDLESS, "def a")
    assert code == 130
    assert out.endswith("\n")
    assert "(cancelled)" in err
    assert "forward passes" in err
    assert "Traceback" not in err


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    """As `| head -c 1` does."""
    with start(*ENDLESS, "def a") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
        code = process.wait(60)
    assert code == 1
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["text", "json"])
def test_a_full_disk_is_an_error_in_words(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [*COMMAND, "-n", "4", *arguments, "hi"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith("No space left on device")
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_closed_streams_are_no_error() -> None:
    script = " ".join(f"'{part}'" for part in [*COMMAND, "-n", "2", "hi"])
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        ended = subprocess.run(
            ["sh", "-c", f"{script} {closed}"], capture_output=True, timeout=60, check=False
        )
        assert ended.returncode == 0
        assert b"Traceback" not in ended.stderr
