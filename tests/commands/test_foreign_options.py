"""Options that surefoot has not, above all llama-server's: one line each, with what to do."""

import argparse

import pytest

from surefoot.commands.llama_server import ANYWAY, INSTEAD
from surefoot.commands.parser import foreign_option
from tests.commands.conftest import Command

ADVICE = {
    "-sm layer": "CUDA_VISIBLE_DEVICES",
    "-ts 3,1": "CUDA_VISIBLE_DEVICES",
    "-mg 0": "CUDA_VISIBLE_DEVICES",
    "-ncmoe 4": "-ngl",
    "-hf ggml-org/model": "-m",
    "--hf-repo=ggml-org/model": "-m",
    "-lv 4": "-vv",
    "-kvu": "-c",
    "--no-slots": "GET /slots",
    "--no-jinja": "--chat-template-file",
}


@pytest.mark.parametrize("given", ADVICE)
def test_an_option_of_llama_servers_is_refused_with_advice(surefoot: Command, given: str) -> None:
    ended = surefoot("serve", *given.split())
    assert ended.code == 2
    option = given.split()[0].partition("=")[0]
    assert ended.problem.startswith(f"{option} is no option of surefoot serve; ")
    assert ADVICE[given] in ended.problem
    assert ended.problem.endswith("(see surefoot serve --help)")


@pytest.mark.parametrize("command", ["run", "serve", "bench"])
@pytest.mark.parametrize("option", ["-xyz", "--bogus", "--ctx", "-mmodel.gguf"])
def test_an_unknown_option_is_never_taken_for_another(
    surefoot: Command, command: str, option: str
) -> None:
    ended = surefoot(command, option, "4")
    assert ended.code == 2
    asked = f"surefoot {command}"
    assert ended.problem == f"{option} is no option of {asked} (see {asked} --help)"


def test_an_argument_too_many_is_named(surefoot: Command) -> None:
    assert surefoot("serve", "a.gguf").problem.startswith("unexpected argument 'a.gguf' (see ")


def test_options_repeated_with_values_and_behind_two_dashes_are_what_they_were() -> None:
    parser = argparse.ArgumentParser()
    known = {name: parser.add_argument(name) for name in ("-t", "-n", "-ngl", "--temp")}
    known["-v"] = parser.add_argument("-v", action="count")
    for line in ("-vv", "-vvv", "-t4", "-n-1", "-ngl 4", "--temp=1", "-", "-- -xyz --foo", "a-bc"):
        assert foreign_option(line.split(), known) is None, line
    for text in ("- an item", "-an item", "-1", "-.5"):
        assert foreign_option([text], known) is None, text
    for line, name in (("-vt", "-vt"), ("-nn", "-nn"), ("a -tb 4", "-tb"), ("--x=1", "--x")):
        assert foreign_option(line.split(), known) == name


def test_what_is_done_anyway_is_accepted_and_listed(surefoot: Command) -> None:
    names = [name for names in ANYWAY for name in names]
    ended = surefoot("serve", *names, "--port", "-1")
    assert "can't listen" in ended.problem
    listed = " ".join(surefoot("serve", "--help").out.split())
    for name in names:
        assert name in listed


def test_no_option_is_both_there_and_advised_against(surefoot: Command) -> None:
    """Advice outlives the want of an option easily."""
    for names in INSTEAD:
        for name in names:
            assert surefoot("serve", name).problem.startswith(f"{name} is no option of "), name
