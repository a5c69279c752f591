"""`surefoot run`: the text to stdout, figures to stderr or as JSON, from any source of prompts."""

import json
import logging
import re
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as ctypes_module
import pytest

from surefoot.commands import plan
from surefoot.commands.speculation import Drafting
from surefoot.drafting.resources import Resources
from surefoot.drafting.scripted import ScriptedDrafter
from surefoot.drafting.settings import SpeculationSettings
from surefoot.runtime.simulated import SimulatedRuntime
from tests.commands.conftest import Command, without_colours

COPY = (Path(__file__).parents[2] / "examples" / "repeat.txt").read_text(encoding="utf-8")
ASK = "Write a Python function that adds."
KEYS = {
    "text",
    "token_ids",
    "prompt_tokens",
    "cached_tokens",
    "rounds",
    "passes",
    "drafted",
    "accepted",
    "accepted_by_position",
    "rollbacks",
    "rollback_bytes",
    "near_ties",
    "prefill_tokens_per_s",
    "decode_tokens_per_s",
    "finish_reason",
    "seed",
}
SHORT_NGRAMS = ["--spec-ngram-simple-size-n", "2"]


def answer(surefoot: Command, *arguments: str, stdin: bytes = b"") -> dict[str, Any]:
    """The JSON object that a run prints: one, and nothing beside it."""
    ended = surefoot.run("--json", *arguments, stdin=stdin)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count("\n") == 1
    value: dict[str, Any] = json.loads(ended.out)
    return value


def test_the_text_goes_to_stdout_and_a_table_to_stderr(surefoot: Command) -> None:
    said = answer(surefoot, "--temp", "0", "-n", "20", COPY)
    ended = surefoot.run("--temp", "0", "-n", "20", COPY)
    assert ended.code == 0
    assert ended.out == said["text"] + "\n"
    for word in ("tokens", "rounds", "drafts", "roll-backs", "near ties", "speed", "seed"):
        assert word in ended.err
    assert said["text"] not in ended.err
    assert "\x1b" not in ended.out


def test_json_has_all_figures_and_they_agree(surefoot: Command) -> None:
    """Cases E7 and O5."""
    said = answer(surefoot, "--temp", "0", "-n", "60", *SHORT_NGRAMS, "--seed", "3", COPY)
    assert said.keys() >= KEYS
    assert said["passes"] == said["rounds"]
    assert len(said["token_ids"]) == said["generated_tokens"] == 60
    assert said["finish_reason"] == "length"
    assert said["accepted"] + said["rounds"] == 60
    assert sum(said["accepted_by_position"]) == said["accepted"] > 0
    assert sum(said["drafted_by_position"]) == said["drafted"] >= said["accepted"]
    assert said["cached_tokens"] == 0
    assert said["prompt_tokens"] > 60
    assert said["prefill_tokens_per_s"] > 0
    assert said["decode_tokens_per_s"] > 0
    assert said["drafter_errors"] == said["recoveries"] == 0
    assert said["seed"] == 3


def test_a_text_that_ends_by_itself_says_stop(surefoot: Command) -> None:
    said = answer(surefoot, "--temp", "0", "-c", "1024", COPY)
    assert said["finish_reason"] == "stop"
    assert said["accepted"] + said["rounds"] - said["generated_tokens"] in (0, 1)


def test_a_prompt_comes_from_an_argument_an_option_a_file_or_stdin(
    surefoot: Command, tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(ASK + "\n", encoding="utf-8")
    stdin = ASK.encode() + b"\n"
    ways: list[tuple[list[str], bytes]] = [
        ([ASK], b"not read"),
        (["-p", ASK], b"not read"),
        (["--prompt", ASK], b""),
        (["-f", str(file)], b"not read"),
        (["--file", str(file)], b""),
        ([], stdin),
        (["-"], stdin),
        (["-p", "-"], stdin),
    ]
    seen = set()
    for arguments, given in ways:
        said = answer(surefoot, "--raw", "--temp", "0", "-n", "4", *arguments, stdin=given)
        seen.add((said["text"], said["prompt_tokens"]))
    # The same text, and a newline at its end is no part of it.
    assert len(seen) == 1


def test_the_same_seed_says_the_same_and_another_something_else(surefoot: Command) -> None:
    def say(seed: str) -> list[int]:
        said = answer(surefoot, "--temp", "1.5", "-n", "16", "--seed", seed, ASK)
        assert said["seed"] == int(seed)
        tokens: list[int] = said["token_ids"]
        return tokens

    assert say("7") == say("7")
    assert len({tuple(say(seed)) for seed in "1234"}) > 1


def test_a_seed_that_was_drawn_is_told_and_repeats_the_text(surefoot: Command) -> None:
    first, second = (answer(surefoot, "--temp", "1.5", "-n", "8", ASK) for _ in range(2))
    assert first["seed"] != second["seed"]
    again = answer(surefoot, "--temp", "1.5", "-n", "8", "--seed", f"{first['seed']}", ASK)
    assert again["token_ids"] == first["token_ids"]


def test_a_system_message_and_a_raw_prompt_make_a_difference(surefoot: Command) -> None:
    plain = answer(surefoot, "--temp", "0", "-n", "1", ASK)
    system = answer(surefoot, "--temp", "0", "-n", "1", "--system", "Be brief.", ASK)
    raw = answer(surefoot, "--temp", "0", "-n", "1", "--raw", ASK)
    assert raw["prompt_tokens"] < plain["prompt_tokens"] < system["prompt_tokens"]


def test_without_speculation_nothing_is_drafted(surefoot: Command) -> None:
    said = answer(surefoot, "--temp", "0", "-n", "20", "--spec-type", "none", COPY)
    assert said["drafter"] == "none"
    assert said["drafted"] == said["rollbacks"] == 0
    assert said["rounds"] == said["passes"] == 20


def test_accepted_tokens_are_coloured_on_demand(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--temp", "0", "-n", "40", *SHORT_NGRAMS, COPY]
    plain = surefoot.run(*arguments).out
    coloured = surefoot.run("-v", *arguments).out
    assert without_colours(coloured) == plain
    green = re.findall(r"\x1b\[32m(.*?)\x1b\[0m", coloured, re.DOTALL)
    said = answer(surefoot, *arguments)
    assert said["accepted"] > 0
    assert "".join(green).strip()
    rest = re.sub(r"\x1b\[32m.*?\x1b\[0m", "", coloured, flags=re.DOTALL)
    assert rest.strip()
    monkeypatch.setenv("NO_COLOR", "1")
    assert surefoot.run("-v", *arguments).out == plain


def test_no_state_is_copied_to_undo_rejected_drafts(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rollback_bytes` is 0 since nothing calls libllama's state functions, not for want of a
    counter: here each of them raises.
    """
    names = [name for name in dir(ctypes_module) if name.startswith("llama_state_")]
    assert len(names) > 10
    called: list[str] = []
    for name in names:

        def fail(*_: object, name: str = name) -> None:
            called.append(name)
            raise AssertionError(f"{name} was called")

        monkeypatch.setattr(ctypes_module, name, fail)
    wrong = ScriptedDrafter([[1, 2, 3], [4], [5] * 8], repeat=True)
    drafting = Drafting(wrong, SpeculationSettings(), Resources())
    monkeypatch.setattr(plan, "drafting_for", lambda *_: nullcontext(drafting))
    said = answer(surefoot, "--temp", "0", "-n", "20", COPY)
    assert said["rollback"] == "fork"
    assert said["rollbacks"] >= 10
    assert said["drafted"] > said["accepted"]
    assert said["rollback_bytes"] == 0
    assert called == []


# What goes wrong underneath; a simulated runtime stands in for libllama


def stand_in(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> SimulatedRuntime:
    runtime = SimulatedRuntime(vocabulary_size=512, end_rate=0, **settings)
    monkeypatch.setattr(plan, "load", lambda _: runtime)
    return runtime


def test_a_generation_that_fails_shows_what_there_is_and_why(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, fail_decode=lambda number: number > 10)
    ended = surefoot.run("--raw", "--temp", "0", "hello")
    assert ended.code == 1
    assert len(ended.out) > 10
    assert "failed" in ended.err
    last = ended.err.splitlines()[-1]
    assert last.startswith("surefoot: error: generation stopped: pass 13 failed, as planned")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("json_wanted", [False, True], ids=["text", "json"])
def test_ctrl_c_ends_after_the_pass_with_all_there_is(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch, *, json_wanted: bool
) -> None:
    calls = iter(range(100))

    def interrupt(_: int) -> float:
        if next(calls) == 7:
            signal.raise_signal(signal.SIGINT)
        return 0.0

    runtime = stand_in(monkeypatch, decode_seconds=interrupt)
    arguments = ["--raw", "--temp", "0", *(["--json"] if json_wanted else []), "hello"]
    ended = surefoot.run(*arguments)
    assert ended.code == 130
    assert runtime.passes == 8
    if json_wanted:
        said = json.loads(ended.out)
        assert said["finish_reason"] == "cancelled"
        assert said["passes"] == said["rounds"] == 7
        assert len(said["text"]) > 7
    else:
        assert len(ended.out) > 7
        assert "(cancelled)" in ended.err


@pytest.mark.parametrize("interrupted", [False, True])
def test_ctrl_c_means_afterwards_what_it_meant_before(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch, *, interrupted: bool
) -> None:
    def interrupt(_: int) -> float:
        if interrupted:
            signal.raise_signal(signal.SIGINT)
        return 0.0

    stand_in(monkeypatch, decode_seconds=interrupt)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        mine = signal.getsignal(signal.SIGINT)
        surefoot.run("--raw", "-n", "1", "h")
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_drafter_that_fails_is_told_of(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(ScriptedDrafter):
        def propose(self, wanted: object) -> list[Any]:  # noqa: ARG002
            raise RuntimeError("broken")

    stand_in(monkeypatch)
    drafting = Drafting(Broken([]), SpeculationSettings(), Resources())
    monkeypatch.setattr(plan, "drafting_for", lambda *_: nullcontext(drafting))
    said = answer(surefoot, "--raw", "--temp", "0", "-n", "8", "hello")
    assert said["drafter_errors"] == 1
    assert said["generated_tokens"] == 8
    stand_in(monkeypatch)
    assert "failed 1 times" in surefoot.run("--raw", "-n", "8", "hello").err


def test_the_runtime_is_closed_whatever_happens(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    for settings in ({}, {"fail_decode": lambda _: True}, {"context_length": 4}):
        runtime = stand_in(monkeypatch, **settings)
        monkeypatch.setattr(runtime, "close", lambda: closed.append(1))
        surefoot.run("--raw", "-n", "8", "hello")
    assert len(closed) == 3


def test_a_context_beyond_the_models_training_is_warned_of_once(
    surefoot: Command, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert surefoot.run("-n", "2", "-c", "4096", "hi").code == 0
        assert surefoot.run("-n", "2", "-c", "0", "hi").code == 0
    assert caplog.messages == []
    assert surefoot.run("-n", "2", "-c", "5000", "hi").code == 0
    assert caplog.messages == [
        "-c gives each slot 5000 tokens, and surefoot-tiny-35moe was trained for 4096: text beyond "
        "those may make no sense"
    ]
