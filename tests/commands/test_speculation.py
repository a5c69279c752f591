"""`--spec-type auto`, models that draft, and synthetic acceptance, from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from surefoot import models
from tests.commands.conftest import Command
from tests.conftest import FAMILY_FILES
from tests.support.random_models import random_model

ASK = ["--temp", "0", "-n", "40", "Write a Python function that adds two numbers."]


def answer(surefoot: Command, *arguments: str) -> dict[str, Any]:
    ended = surefoot.run("--json", *arguments)
    assert ended.code == 0, ended.err
    said: dict[str, Any] = json.loads(ended.out)
    return said


def test_a_models_own_head_drafts_unless_told_otherwise(surefoot: Command) -> None:
    for arguments in ([], ["--spec-type", "auto"]):
        said = answer(surefoot, *arguments, *ASK)
        assert said["drafter"] == "draft-mtp"
        assert said["accepted"] > 0
        assert said["passes"] == said["rounds"]
    assert answer(surefoot, "--spec-type", "none", *ASK)["drafter"] == "none"


def test_without_a_head_n_grams_draft(surefoot: Command) -> None:
    assert answer(surefoot, "-m", str(models.DRAFT), *ASK)["drafter"] == "ngram-simple"


def test_a_draft_model_given_without_a_type_is_used(surefoot: Command) -> None:
    said = answer(surefoot, "-md", str(models.DRAFT), *ASK)
    assert said["drafter"] == "draft-simple"
    assert said["by_drafter"]["draft-simple"]["accepted"] == said["accepted"] > 0


def test_the_embedded_draft_model_is_for_the_embedded_target_alone(surefoot: Command) -> None:
    assert answer(surefoot, "--spec-type", "draft-simple", *ASK)["drafter"] == "draft-simple"
    ended = surefoot.run("-m", str(models.DRAFT), "--spec-type", "draft-simple", *ASK)
    assert ended.problem == (
        "--spec-type: draft-simple needs a draft model; name its file with -md"
    )
    listed = " ".join(surefoot("run", "--help").out.split())
    assert "draft-simple needs -md, except with the model that comes with surefoot" in listed
    assert "auto is the default: a model given with -md, else" in listed


def test_a_draft_model_with_another_vocabulary_is_refused_in_words(surefoot: Command) -> None:
    other = random_model("llama", FAMILY_FILES)
    problem = surefoot.run("-md", str(other), *ASK).problem
    assert other.name in problem or "tokenizer" in problem


@pytest.mark.parametrize("path", ["missing.gguf", "."])
def test_a_draft_model_that_can_not_be_loaded_is_a_clear_error(
    surefoot: Command, tmp_path: Path, path: str
) -> None:
    assert "-md" in surefoot.run("-md", str(tmp_path / path), *ASK).problem


def test_synthetic_acceptance_is_marked_and_repeatable(surefoot: Command) -> None:
    arguments = ["--spec-type", "draft-simple", "--spec-synth-len", "3.5", "--seed", "5", *ASK]
    first, second = (answer(surefoot, *arguments) for _ in range(2))
    assert first["synthetic"] is second["synthetic"] is True
    assert first["token_ids"] == second["token_ids"]
    assert 2.5 < first["mean_length"] <= 4
    shown = surefoot.run(*arguments)
    assert "THE TEXT IS NOT" in shown.err
    assert answer(surefoot, *ASK)["synthetic"] is False
