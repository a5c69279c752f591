"""The options for drafters that run a model, under llama-server's names (build 11434)."""

import argparse
import logging
from pathlib import Path

import pytest

from surefoot.decoding import InvalidParameterError
from surefoot.drafting.base import make_drafter
from surefoot.drafting.draft_model import DraftModel
from surefoot.drafting.options import add_speculation_arguments, speculation_settings
from surefoot.drafting.resources import Resources
from surefoot.drafting.settings import SpeculationSettings
from tests.drafting.texts import draft, sequence_of
from tests.support.kinds import simulated


def parsed(line: str) -> SpeculationSettings:
    parser = argparse.ArgumentParser(prog="surefoot")
    add_speculation_arguments(parser)
    return speculation_settings(parser.parse_args(line.split()))


@pytest.mark.parametrize(
    ("flags", "field", "text", "value"),
    [
        ("-md --model-draft --spec-draft-model", "draft_model", "d.gguf", Path("d.gguf")),
        ("--spec-draft-p-min --draft-p-min", "draft_p_min", "0.75", 0.75),
        ("-cd --ctx-size-draft", "ctx_size_draft", "512", 512),
        (
            "-ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft",
            "draft_ngl",
            "7",
            7,
        ),
        ("-ngld", "draft_ngl", "all", 1 << 16),
        ("-ngld", "draft_ngl", "auto", None),
        ("-td --spec-draft-threads --threads-draft", "draft_threads", "3", 3),
    ],
)
def test_names_are_llama_servers(flags: str, field: str, text: str, value: object) -> None:
    for flag in flags.split():
        settings = parsed(f"--spec-type draft-simple {flag} {text}")
        assert getattr(settings, field) == value


def test_defaults_are_llama_servers() -> None:
    settings = parsed("--spec-type draft-simple")
    assert (settings.draft_n_max, settings.draft_n_min, settings.draft_p_min) == (3, 0, 0.0)
    assert settings.n_max == 3


@pytest.mark.parametrize("p_min", ["-0.1", "1.5", "nan"])
def test_a_probability_is_one(p_min: str) -> None:
    with pytest.raises(InvalidParameterError, match="must lie between 0 and 1") as caught:
        parsed(f"--spec-type draft-simple --spec-draft-p-min={p_min}")
    assert caught.value.name == "--spec-draft-p-min"
    with pytest.raises(InvalidParameterError, match="draft_p_min"):
        SpeculationSettings(draft_p_min=float(p_min))


def test_a_draft_model_without_a_type_is_used_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    """Case O4."""
    with caplog.at_level(logging.INFO):
        assert parsed("-md some.gguf").types == ("draft-simple",)
    assert caplog.messages == ["-md without --spec-type: some.gguf drafts (draft-simple)"]


@pytest.mark.parametrize("types", ["none", "ngram-mod"])
def test_a_draft_model_that_is_not_used_gives_a_warning(
    types: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = parsed(f"--spec-type {types} -md some.gguf")
    assert settings.types == (types,)
    assert caplog.messages == [f"--spec-draft-model has no effect with --spec-type {types}"]


def test_parameters_reach_the_drafter() -> None:
    settings = SpeculationSettings(types=("draft-simple",), draft_n_max=5, draft_n_min=4)
    drafter = make_drafter(settings, Resources(draft_model=simulated("hybrid"), shared_tokens=64))
    assert isinstance(drafter, DraftModel)
    assert drafter.name == "draft-simple"
    assert len(draft(drafter, sequence_of([1, 2]))) == 5
    assert draft(drafter, sequence_of([1, 2]), most=3) == []
    certain = SpeculationSettings(types=("draft-simple",), draft_p_min=1.0)
    drafter = make_drafter(certain, Resources(draft_model=simulated("hybrid")))
    assert drafter is not None
    assert draft(drafter, sequence_of([1, 2])) == []
    drafter = make_drafter(settings, Resources(draft_model=simulated("hybrid"), shared_tokens=2))
    assert drafter is not None
    assert draft(drafter, sequence_of([1, 2])) == []


def test_it_can_be_chained_and_comes_last() -> None:
    settings = SpeculationSettings(types=("draft-simple", "ngram-simple"))
    drafter = make_drafter(settings, Resources(draft_model=simulated("hybrid")))
    assert drafter is not None
    assert drafter.name == "ngram-simple,draft-simple"
    (proposed,) = drafter.propose([(sequence_of([1, 2]), 3)])
    assert proposed.drafter == "draft-simple"


def test_without_its_model_it_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(InvalidParameterError, match=r"draft-simple needs a draft model.* -md"):
        make_drafter(SpeculationSettings(types=("draft-simple",)))
