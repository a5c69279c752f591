"""docs/llama-server.md tells of every option of llama-server's, and tells the truth."""

import re
from pathlib import Path

import pytest

from surefoot.commands.llama_server import ANYWAY, INSTEAD
from tests.commands.conftest import Command

PAGE = (Path(__file__).parents[2] / "docs" / "llama-server.md").read_text(encoding="utf-8")
OPTIONS = (Path(__file__).parent / "llama_server_options.txt").read_text(encoding="utf-8").split()
"""All options of llama-server in build 11434, read out of its common/arg.cpp."""


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> dict[str, str]:
    """For each option in a section's table what the second column says."""
    found: dict[str, str] = {}
    for line in section(title).splitlines():
        if line.startswith("| `"):
            names, text = line.strip("| ").split(" | ")
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", names), text)
    return found


@pytest.mark.parametrize(
    ("title", "table"), [("Accepted without effect", ANYWAY), ("Missing", INSTEAD)]
)
def test_a_table_says_what_the_program_does(title: str, table: dict[tuple[str, ...], str]) -> None:
    assert rows(title) == {name: text for names, text in table.items() for name in names}


def test_every_option_is_there_or_is_told_to_be_missing(surefoot: Command) -> None:
    listed = set(re.findall(r"(?<![\w-])--?[a-z][\w.-]*", surefoot("serve", "--help").out, re.I))
    hidden = {name for name in OPTIONS if "draft" in name or name.startswith("--spec-ngram-")}
    missing = set(re.findall(r"`(-[^`\s]+)`", section("Missing")))
    assert set(OPTIONS) - listed - hidden - missing == set()
    for name in sorted(missing):
        assert surefoot("serve", name).problem.startswith(f"{name} is no option of "), name


def test_what_is_told_to_be_the_same_is_there(surefoot: Command) -> None:
    listed = surefoot("serve", "--help").out + surefoot("run", "--help").out
    for name in re.findall(r"`(--?[a-z][a-z-]*)`", section("The same")):
        assert name == "-vv" or re.search(rf"(?<![\w-]){name}(?![\w-])", listed), name
