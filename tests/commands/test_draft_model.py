"""A draft model on the command line: what is loaded, what is refused, and how that is said."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from surefoot import models
from surefoot.cli import main
from tests.conftest import FAMILY_FILES
from tests.support.random_models import random_model

PROMPT = "class Point:\n    def __init__(self, x, y):\n"
SHORT = ["run", PROMPT, "--raw", "-n", "40", "--temp", "0", "-t", "1", "-c", "256"]


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*SHORT, *arguments, "--json"]) == 0
    result: dict[str, Any] = orjson.loads(capsys.readouterr().out)
    return result


def refusal(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*SHORT, *arguments]) in (1, 2)
    return capsys.readouterr().err


def test_a_draft_model_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    result = run("-md", str(models.DRAFT), "--spec-draft-n-max", "4", capsys=capsys)
    assert result["drafter"] == "draft-simple"
    assert result["accepted"] > 0
    assert result["drafted_by_position"][3] > 0
    assert result["passes"] == result["rounds"]


def test_the_embedded_model_has_its_draft_model_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    result = run("--spec-type", "ngram-simple,draft-simple", capsys=capsys)
    assert result["drafter"] == "ngram-simple,draft-simple"
    assert result["accepted"] > 0


def test_other_models_need_one_named(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(random_model("llama", FAMILY_FILES))
    error = refusal("-m", model, "--spec-type", "draft-simple", capsys=capsys)
    assert "draft-simple needs a draft model; name its file with -md" in error


def test_a_draft_model_that_can_not_be_loaded_ends_the_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Case C5."""
    missing = tmp_path / "missing.gguf"
    error = refusal("-md", str(missing), capsys=capsys)
    assert f"the draft model (-md): can't load {missing}: there is no such file" in error


def test_a_draft_model_whose_memory_does_not_fit_ends_the_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Case C5."""
    error = refusal("-md", str(models.DRAFT), "-cd", str(1 << 29), capsys=capsys)
    assert "the draft model (-md): a context of 536870912 tokens" in error


def test_a_draft_model_with_other_tokens_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Case O1."""
    error = refusal("-md", str(random_model("rwkv7", FAMILY_FILES)), capsys=capsys)
    assert "the draft model's file carries no tokenizer" in error


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("-cd", "8", "--ctx-size-draft: must be 0 (as the model was trained) or at least 32"),
        ("-td", "0", "--spec-draft-threads: must be 1 or more"),
        ("--spec-draft-p-min", "2", "--spec-draft-p-min: must lie between 0 and 1"),
    ],
)
def test_a_number_outside_its_range_is_an_error_under_the_options_name(
    option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal("-md", str(models.DRAFT), option, value, capsys=capsys)


def test_a_shorter_draft_context_ends_drafts_and_not_the_text(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Case I8."""
    plain = run("--spec-type", "none", "-n", "100", capsys=capsys)
    result = run("-md", str(models.DRAFT), "-cd", "32", "-n", "100", capsys=capsys)
    assert result["generated_tokens"] == plain["generated_tokens"] > 40
    assert result["drafted"] > 0
    assert [r.message for r in caplog.records if "draft-simple" in r.message] == [
        "draft-simple: no more drafts, the draft model's context of 32 tokens is full; "
        "-cd makes it longer"
    ]
