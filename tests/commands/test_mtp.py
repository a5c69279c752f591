"""A multi-token-prediction head on the command line: where it comes from, and doing without."""

from typing import Any

import orjson
import pytest

from surefoot import models
from surefoot.cli import main
from tests.conftest import FAMILY_FILES
from tests.support import split_heads

PROMPT = "class Point:\n    def __init__(self, x, y):\n"
SHORT = ["run", PROMPT, "--raw", "-n", "40", "--temp", "0", "-t", "1", "-c", "256"]
HEAD_BLOCK = 8


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*SHORT, *arguments, "--json"]) == 0
    result: dict[str, Any] = orjson.loads(capsys.readouterr().out)
    return result


def test_the_models_own_head_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    result = run("--spec-type", "draft-mtp", "--spec-draft-n-max", "4", capsys=capsys)
    assert result["drafter"] == "draft-mtp"
    assert result["accepted"] > 10
    assert result["drafted_by_position"][3] > 0
    assert len(result["drafted_by_position"]) == 4
    assert result["passes"] == result["rounds"]


def test_a_head_is_sure_of_fewer_tokens_than_it_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    """Case K5."""
    careless = run("--spec-type", "draft-mtp", capsys=capsys)
    careful = run("--spec-type", "draft-mtp", "--spec-draft-p-min", "0.8", capsys=capsys)
    assert 0 < careful["drafted"] < careless["drafted"]
    share = {name: r["accepted"] / r["drafted"] for name, r in (("a", careless), ("b", careful))}
    assert share["b"] > share["a"]


def test_a_head_from_a_file_of_its_own_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    head = split_heads.head_of(models.TARGET, FAMILY_FILES, HEAD_BLOCK)
    trunk = split_heads.trunk_of(models.TARGET, FAMILY_FILES, HEAD_BLOCK)
    own = run("--spec-type", "draft-mtp", capsys=capsys)
    other = run("--spec-type", "draft-mtp", "-m", str(trunk), "-md", str(head), capsys=capsys)
    for name in ("drafter", "drafted", "accepted", "token_ids"):
        assert other[name] == own[name]


def test_beside_a_draft_model_the_head_is_the_models_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = run("--spec-type", "draft-mtp,draft-simple", "-md", str(models.DRAFT), capsys=capsys)
    assert result["drafter"] == "draft-mtp,draft-simple"
    assert result["accepted"] > 10


def test_without_a_head_speculation_is_off_and_the_reason_is_shown(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Case O2."""
    path = split_heads.beheaded(models.TARGET, FAMILY_FILES, HEAD_BLOCK)
    plain = run("--spec-type", "none", capsys=capsys)
    result = run("-m", str(path), "--spec-type", "draft-mtp", capsys=capsys)
    assert (result["drafter"], result["drafted"]) == ("none", 0)
    assert result["token_ids"] == plain["token_ids"]
    (message,) = (r.message for r in caplog.records if r.levelname == "WARNING")
    assert message.startswith("draft-mtp is off: ")
    assert "announces 1 multi-token-prediction head, but the weights are not there" in message


def test_other_drafters_go_on_without_the_head(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-m", str(models.DRAFT), "--spec-type", "draft-mtp,ngram-simple"]
    assert run(*arguments, capsys=capsys)["drafter"] == "ngram-simple"


def test_a_head_is_no_draft_model_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    path = split_heads.head_of(models.TARGET, FAMILY_FILES, HEAD_BLOCK)
    assert main([*SHORT, "--spec-type", "draft-simple", "-md", str(path)]) == 1
    error = capsys.readouterr().err
    assert "it holds a multi-token-prediction head and nothing else" in error
    assert "--spec-type draft-mtp" in error


def test_a_draft_model_is_no_head_and_that_is_said(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    arguments = ["--spec-type", "draft-mtp", "-md", str(models.DRAFT)]
    assert run(*arguments, capsys=capsys)["drafter"] == "none"
    assert f"{models.DRAFT.name} has no multi-token-prediction head" in caplog.text
