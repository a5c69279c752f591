"""`--record` and `surefoot replay`, on the model that comes along."""

import json
from pathlib import Path

import pytest

from tests.commands.conftest import Command

RUN = ["-t", "1", "-c", "1024", "-n", "30"]


@pytest.mark.parametrize(
    "options",
    [["--temp", "0"], ["-s", "3", "--temp", "0.9", "--exact", "strict"], ["--spec-type", "none"]],
    ids=lambda options: options[-1],
)
def test_a_recorded_request_runs_again_equally(
    surefoot: Command, tmp_path: Path, options: list[str]
) -> None:
    ended = surefoot("run", *RUN, *options, "--record", str(tmp_path), "Write a short story.")
    assert ended.code == 0, ended.err
    [path] = tmp_path.iterdir()
    again = surefoot("replay", str(path))
    assert again.code == 0, again.out + again.err
    told = again.out.splitlines()
    assert told[0].startswith("recorded: ")
    assert told[1].startswith(("plain: equal", "plain: near tie"))
    assert told[2].startswith(("recorded drafts: equal", "recorded drafts: near tie"))


def test_a_record_of_another_text_ends_with_1_and_names_the_token(
    surefoot: Command, tmp_path: Path
) -> None:
    surefoot("run", *RUN, "--temp", "0", "--record", str(tmp_path), "def add(a, b):")
    [path] = tmp_path.iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rounds = [line["round"] for line in lines if "round" in line]
    sure = next(played for played in rounds if played["gaps"][0] > 3)  # far from any near tie
    sure["tokens"][0] = 5
    at = sure["at"] - rounds[0]["at"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = surefoot("replay", str(path))
    assert again.code == 1
    assert "plain: different" in again.out
    assert f"token {at} of the answer was 5 " in again.out


def test_a_model_that_is_gone_or_another_one_is_told(surefoot: Command, tmp_path: Path) -> None:
    surefoot("run", *RUN, "--temp", "0", "--record", str(tmp_path), "def add(a, b):")
    [path] = tmp_path.iterdir()
    lines = path.read_text().splitlines(keepends=True)
    header = json.loads(lines[0])
    model = header["facts"]["model"]
    here, model["path"], model["size"] = model["path"], "/no/such/model.gguf", 1
    path.write_text("".join([json.dumps(header) + "\n", *lines[1:]]))
    gone = surefoot("replay", str(path))
    assert gone.code == 1
    assert gone.problem.endswith("which is not there; say where it is with -m")
    other = surefoot("replay", str(path), "-m", here)
    assert other.code == 0
    assert "is not the file that was recorded" in other.err


def test_files_that_are_no_records_are_one_line(surefoot: Command, tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("hello\n")
    assert surefoot("replay", str(tmp_path / "odd")).problem.endswith("(--record writes them)")
    assert "No such file" in surefoot("replay", str(tmp_path / "none")).problem
    ended = surefoot("run", "hi", "--record", str(tmp_path / "odd" / "folder"))
    assert ended.code == 1
    assert "can't make the folder" in ended.problem
