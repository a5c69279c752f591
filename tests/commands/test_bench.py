"""`surefoot bench`: pairs of plain and speculative runs, and what surefoot's own code costs."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from surefoot.bench.compare import Row
from surefoot.bench.overhead import RollbackCost, RoundCost
from surefoot.commands import bench
from tests.commands.conftest import Command


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    """A file with two prompts, and an empty line between them."""
    path = tmp_path / "prompts.txt"
    path.write_text("Say ha ha ha ha ha ha.\n\nAdd 1 and 1.\n", encoding="utf-8")
    return str(path)


def test_json_has_a_row_for_each_kind_of_prompt(surefoot: Command) -> None:
    ended = surefoot.bench("--json", "-n", "16", "--repeats", "1")
    assert ended.code == 0
    said = json.loads(ended.out)
    assert said.keys() == {"model", "rollback", "synthetic", "rows"}
    assert [row["prompts"] for row in said["rows"]] == ["copy", "edit", "code", "json", "prose"]
    for row in said["rows"]:
        assert row.keys() == names(Row)
        assert row["ratio_min"] <= row["ratio"] <= row["ratio_max"]
        assert row["tokens_per_pass"] >= 1
        # A speed counts only if what was said is the same (case D12).
        assert sum(row["equal"].values()) == row["pairs"]
        assert row["equal"]["different"] == 0


def test_prompts_can_come_from_a_file_and_figures_go_into_a_table(
    surefoot: Command, prompts: str
) -> None:
    arguments = ["--prompts", prompts, "-n", "4", "--repeats", "2"]
    said = json.loads(surefoot.bench("--json", *arguments).out)
    [row] = said["rows"]
    assert (row["prompts"], row["pairs"]) == ("prompts.txt", 4)
    ended = surefoot.bench(*arguments)
    assert ended.code == 0
    assert "prompts.txt" in ended.out
    for words in ("t/pass: tokens", "=/~/x: pairs with the same tokens", "acc.: draft tokens"):
        assert words in ended.out


def test_overhead_is_measured_per_round_and_per_roll_back(
    surefoot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "ROLLBACK_CONTEXTS", (64, 256))
    ended = surefoot.bench("--overhead", "--json")
    assert ended.code == 0
    said = json.loads(ended.out)
    assert said.keys() == {"rounds", "rollbacks"}
    assert all(row.keys() == names(RoundCost) for row in said["rounds"])
    assert [row["sequences"] for row in said["rounds"]] == [1, 4] * 3
    assert all(row.keys() == names(RollbackCost) for row in said["rollbacks"])
    assert [row["context"] for row in said["rollbacks"]] == [64, 256]
    for row in said["rollbacks"]:
        assert row["follow"] > 0
        assert row["roll_back"] > 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-n", "0"], "--n-predict: must be at least 1"),
        (["--repeats", "0"], "--repeats: must be at least 1"),
        (["--spec-type", "none"], "--spec-type: is 'none', so there is nothing to compare"),
        (["--spec-type", "foo"], "--spec-type: there is no drafter called 'foo'"),
        (["--prompts", "none.txt"], "--prompts: can't read none.txt"),
        (["--prompts", "empty.txt"], "--prompts: empty.txt holds no prompts"),
        (["--temp", "-1"], "--temp: must be"),
        (["--overhead", "-t", "0"], "--threads: must"),
    ],
)
def test_mistakes_are_errors_in_words(
    surefoot: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("\n \n", encoding="utf-8")
    ended = surefoot.bench(*arguments)
    assert ended.code == 2
    assert text in ended.problem
