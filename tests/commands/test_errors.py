"""Users' mistakes: one line that says what is wrong, exit code 1 or 2, and no traceback."""

import re
from pathlib import Path

import pytest

from surefoot import models
from surefoot.runtime.libllama import LoadSettings, load, need
from tests.commands.conftest import Command
from tests.conftest import FAMILY_FILES
from tests.support.random_models import random_model

DRAFT = models.DRAFT.read_bytes()

OPTIONS = {
    "--temp": [("nan", "must be a finite number"), ("-1", "must be"), ("inf", "finite")],
    "--top-p": [("2", "at most 1"), ("0", "above 0"), ("nan", "must be")],
    "--top-k": [("-1", "0 or more")],
    "--min-p": [("2", "between 0 and 1"), ("-1", "between 0 and 1")],
    "--seed": [("-2", "whole number"), ("99999999999999999999", "whole number")],
    "-n": [("0", "at least 1, or -1"), ("-2", "at least 1, or -1")],
    "--ctx-size": [("8", "at least 32 tokens"), ("-1", "at least 32 tokens")],
    "--threads": [("0", "between 1 and"), ("100000", "between 1 and")],
    "--batch-size": [("0", "must"), ("1", "at least 32 tokens")],
    "--ubatch-size": [("1", "at least 32 tokens")],
    "--snapshots": [("-1", "between 0 and"), ("1000", "between 0 and")],
    "--spec-type": [("foo", "no drafter called 'foo'; known are none, ngram-simple")],
    "--spec-ngram-simple-size-n": [("0", "between 1 and 1024, and is 0")],
}
CASES = [(option, value, text) for option, cases in OPTIONS.items() for value, text in cases]

FILES = {
    "no GGUF": (b"hello, world", "it is not a GGUF file"),
    "empty": (b"", "the file is empty"),
    "cut short": (DRAFT[: len(DRAFT) // 2], "cut short or damaged"),
    "of the future": (DRAFT.replace(b"qwen3", b"qwen9"), "unknown model architecture: 'qwen9'"),
}


@pytest.mark.parametrize(("option", "value", "text"), CASES)
def test_a_value_out_of_range_is_named_as_it_was_given(
    surefoot: Command, option: str, value: str, text: str
) -> None:
    ended = surefoot.run("hi", option, value)
    assert ended.code == 2
    assert ended.problem.startswith(f"{option}: ")
    assert re.search(text, ended.problem)


@pytest.mark.parametrize("command", ["run hi -n 5", "bench -n 5", "serve --port 0"])
def test_a_bias_for_a_token_that_is_none_is_an_error_in_words(
    surefoot: Command, command: str
) -> None:
    ended = surefoot(*command.split(), "-t", "1", "-l", "99999+1")
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert last == "surefoot: error: --logit-bias: there is no token 99999; ids end at 8191"


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_model_is_an_error_in_words(
    surefoot: Command, tmp_path: Path, kind: str
) -> None:
    content, text = FILES[kind]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    ended = surefoot.run("hi", "-m", str(path))
    assert ended.code == 1
    assert str(path) in ended.problem
    assert text in ended.problem


def test_a_missing_model_and_a_folder_are_errors_in_words(
    surefoot: Command, tmp_path: Path
) -> None:
    missing = surefoot.run("hi", "-m", str(tmp_path / "none.gguf"))
    folder = surefoot.run("hi", "-m", str(models.TARGET.parent))
    assert missing.code == folder.code == 1
    assert "there is no such file" in missing.problem
    assert "it is a folder. Name one of the model files in it" in folder.problem


@pytest.mark.parametrize(
    ("arguments", "stdin", "text"),
    [
        ([], b"", "prompt: is empty"),
        ([], b" \n", "prompt: is empty"),
        ([""], b"", "prompt: is empty"),
        (["-p", "  "], b"", "prompt: is empty"),
        (["a", "-p", "b"], b"", "prompt: give one prompt"),
        (["a", "-f", "b"], b"", "prompt: give one prompt"),
        (["-p", "a", "-f", "b"], b"", "prompt: give one prompt"),
        ([], b"\xff\xfe", "prompt: stdin is not UTF-8"),
        (["-f", "none.txt"], b"", "--file: none.txt: No such file"),
        (["-f", "."], b"", "--file: .: Is a directory"),
    ],
)
def test_a_prompt_that_is_none_is_an_error_in_words(
    surefoot: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    stdin: bytes,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = surefoot.run(*arguments, stdin=stdin)
    assert ended.code == 2
    assert text in ended.problem


def test_a_prompt_file_that_is_no_text_is_an_error_in_words(
    surefoot: Command, tmp_path: Path
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"caf\xe9")
    ended = surefoot.run("-f", str(path))
    assert ended.code == 2
    assert f"{path} is not UTF-8 text" in ended.problem


def test_a_prompt_file_that_may_not_be_read_is_an_error_in_words(
    surefoot: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("hello", encoding="utf-8")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    ended = surefoot.run("-f", str(path))
    assert ended.code == 2
    assert f"--file: {path}: Permission denied" in ended.problem


def test_no_prompt_on_a_terminal_is_answered_with_an_example(surefoot: Command) -> None:
    ended = surefoot.run(stdin=None)
    assert ended.code == 2
    assert "none given; try: surefoot run '" in ended.problem


def test_a_prompt_longer_than_the_context_says_by_how_much(surefoot: Command) -> None:
    ended = surefoot.run("-c", "64", "word " * 500)
    assert ended.code == 1
    assert "tokens and the context holds 64, the answer included" in ended.problem
    assert "-c" in ended.problem


def test_a_context_that_does_not_fit_says_what_would(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(need, "available_memory", lambda: 4 << 30)
    ended = surefoot.run("hi", "-c", "100000000")
    assert ended.code == 1
    assert "a context of 100000000 tokens" in ended.problem
    assert "Ask for at most" in ended.problem
    assert "(-c)" in ended.problem


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--bogus"],
        ["run", "--seed", "x", "hi"],
        ["run", "-ngl", "some", "hi"],
        ["run", "--draft", "4", "hi"],
        ["run", "one", "two"],
        ["nonsense"],
        [],
    ],
    ids=" ".join,
)
def test_what_can_not_be_parsed_is_a_usage_error(surefoot: Command, arguments: list[str]) -> None:
    ended = surefoot(*arguments)
    assert ended.code == 2
    command = "surefoot run" if arguments[:1] == ["run"] else "surefoot"
    assert ended.problem.endswith(f" (see {command} --help)")


def test_a_file_without_a_name_or_a_tokenizer_is_called_by_its_own(surefoot: Command) -> None:
    """libllama writes n/a for a name that it doesn't know."""
    path = random_model("lfm2", FAMILY_FILES)
    ended = surefoot.run("hi", "-m", str(path))
    assert ended.code == 1
    assert ended.problem.startswith(f"the model file '{path.name}' has no tokenizer")
    with load(LoadSettings(path, context_length=64, threads=1)) as runtime:
        assert runtime.info.name == path.stem


def test_version_and_help_are_there(surefoot: Command) -> None:
    version = surefoot("--version")
    assert version.code == 0
    assert re.match(r"surefoot \d+\.\d+", version.out)
    top = surefoot("--help")
    assert top.code == 0
    for command in ("run", "serve", "bench"):
        assert command in top.out
    listed = surefoot("run", "--help")
    assert listed.code == 0
    assert "docs/glossary.md" in listed.out
    for option in ("--model", "--ctx-size", "--temp", "--seed", "--spec-type", "--json", "--file"):
        assert option in listed.out


def test_more_slots_than_tokens_in_a_pass_are_refused(surefoot: Command) -> None:
    ended = surefoot("serve", "--port", "0", "-np", "64", "-b", "32")
    assert ended.code == 2
    assert ended.problem == "--batch-size: must have room for each of 64 slots"


@pytest.mark.parametrize("other", [["--exact", "strict"], ["--mirostat", "2"]], ids=str)
def test_a_server_that_could_answer_no_request_is_not_started(
    surefoot: Command, other: list[str]
) -> None:
    ended = surefoot("serve", "--port", "0", "--verify", "rejection", *other)
    assert ended.code == 2
    assert ended.problem.startswith("--verify: must be coupled with " + other[0])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--api-key", ""], "--api-key: holds no key; leave it out to let everybody in"),
        (["--api-key", " , "], "--api-key: holds no key"),
        (["--api-key-file", "empty"], "--api-key-file: holds no key"),
        (["--api-key-file", "none"], "--api-key-file: none can't be read: No such file"),
    ],
)
def test_an_option_for_keys_without_a_key_opens_no_server(
    surefoot: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    """Or a script whose variable is empty would let everybody in."""
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("# nothing\n", encoding="utf-8")
    ended = surefoot("serve", *arguments)
    assert ended.code == 2
    assert ended.problem.startswith(problem)
