"""The command line: names, defaults and ranges as llama-server's."""

import argparse
import logging
from pathlib import Path

import pytest

from surefoot.decoding import InvalidParameterError
from surefoot.drafting.options import add_speculation_arguments, speculation_settings
from surefoot.drafting.settings import SpeculationSettings

# From `llama-server --help`, builds 10434 and 11434.
LLAMA_SERVER_DEFAULTS = {
    "--spec-draft-n-max": 3,
    "--spec-draft-n-min": 0,
    "--spec-ngram-mod-n-min": 48,
    "--spec-ngram-mod-n-max": 64,
    "--spec-ngram-mod-n-match": 24,
    "--spec-ngram-simple-size-n": 12,
    "--spec-ngram-simple-size-m": 48,
    "--spec-ngram-simple-min-hits": 1,
    "--spec-ngram-map-k-size-n": 12,
    "--spec-ngram-map-k-size-m": 48,
    "--spec-ngram-map-k-min-hits": 1,
    "--spec-ngram-map-k4v-size-n": 12,
    "--spec-ngram-map-k4v-size-m": 48,
    "--spec-ngram-map-k4v-min-hits": 1,
}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="surefoot")
    add_speculation_arguments(parser)
    return parser


def parsed(line: str) -> SpeculationSettings:
    return speculation_settings(parser().parse_args(line.split()))


def field(flag: str) -> str:
    return flag.removeprefix("--spec-").replace("-", "_")


@pytest.mark.parametrize(("flag", "default"), LLAMA_SERVER_DEFAULTS.items())
def test_names_and_defaults_are_llama_servers(flag: str, default: int) -> None:
    assert getattr(parsed(""), field(flag)) == default
    assert getattr(parsed(f"--spec-draft-n-max 20 {flag} 17"), field(flag)) == 17


def test_without_options_the_settings_are_the_defaults() -> None:
    assert parsed("") == SpeculationSettings()


def test_help_tells_names_and_defaults() -> None:
    text = " ".join(parser().format_help().split())
    for flag, default in LLAMA_SERVER_DEFAULTS.items():
        assert flag in text
        assert f"(default: {default})" in text.split(f"{flag} N ")[1].split(" --spec-")[0]


@pytest.mark.parametrize(
    ("line", "types"),
    [
        ("", ("ngram-simple",)),
        ("--spec-type none", ("none",)),
        ("--spec-type ngram-mod", ("ngram-mod",)),
        ("--spec-type ngram-mod,ngram-simple", ("ngram-mod", "ngram-simple")),
        ("--spec-type ngram-mod --spec-type ngram-simple", ("ngram-mod", "ngram-simple")),
        ("--spec-type ngram-mod --spec-type none", ("none",)),
        ("--spec-type none --spec-type ngram-mod", ("ngram-mod",)),
        ("--spec-default", ("ngram-mod",)),
        ("--spec-type ngram-simple --spec-default", ("ngram-simple", "ngram-mod")),
    ],
)
def test_types_add_up_until_one_says_none(line: str, types: tuple[str, ...]) -> None:
    assert parsed(line).types == types


@pytest.mark.parametrize("line", ["none,draft-mtp", "ngram-mod,none", "none,none"])
def test_none_stands_alone(line: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"none stands alone, and not in '{line}'"):
        parsed(f"--spec-type {line}")


@pytest.mark.parametrize(
    "line", ["--spec-type auto,ngram-mod", "--spec-type auto --spec-type ngram-mod"]
)
def test_auto_stands_alone(line: str) -> None:
    with pytest.raises(InvalidParameterError, match="--spec-type: auto stands alone"):
        parsed(line)


@pytest.mark.parametrize(
    ("line", "most"),
    [("--spec-draft-n-min 5 --spec-draft-n-max 2", 2), ("--spec-draft-n-min 5", 3)],
)
def test_drafts_that_could_never_be_long_enough_are_refused(line: str, most: int) -> None:
    problem = f"must be at most --spec-draft-n-max, which is {most}, and is 5"
    with pytest.raises(InvalidParameterError, match=problem) as caught:
        parsed(line)
    assert caught.value.name == "--spec-draft-n-min"
    with pytest.raises(InvalidParameterError, match="draft_n_min: must be at most draft_n_max"):
        SpeculationSettings(draft_n_min=4)


@pytest.mark.parametrize("types", ["ngram-magic", "ngram-simple,draft-magic", "", "ngram-mod,"])
def test_an_unknown_type_is_an_error_that_lists_the_known_ones(types: str) -> None:
    options = parser().parse_args([f"--spec-type={types}"])
    with pytest.raises(InvalidParameterError, match="none, ngram-simple, ngram-map-k") as caught:
        speculation_settings(options)
    assert caught.value.name == "--spec-type"


@pytest.mark.parametrize(
    "line",
    [
        "--spec-draft-n-max -1",
        "--spec-ngram-simple-size-n 0",
        "--spec-ngram-simple-size-m 1025",
        "--spec-ngram-simple-min-hits 0",
        "--spec-ngram-mod-n-match 0",
        "--spec-ngram-mod-n-max 1025",
    ],
)
def test_a_number_outside_its_range_is_an_error_under_the_options_name(line: str) -> None:
    with pytest.raises(InvalidParameterError, match="must be between") as caught:
        parsed(line)
    assert caught.value.name == line.split()[0]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("--draft-max 16", "--spec-draft-n-max"),
        ("--draft 16", "--spec-draft-n-max"),
        ("--draft-n-min 2", "--spec-draft-n-min"),
        ("--spec-ngram-size-n 8", "--spec-ngram-simple-size-n"),
        ("--spec-ngram-size-m 8", "--spec-ngram-simple-size-m"),
        ("--spec-ngram-min-hits 2", "--spec-ngram-simple-min-hits"),
    ],
)
def test_removed_spellings_say_what_to_use(
    line: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(line)
    error = capsys.readouterr().err
    assert "has been removed" in error
    assert instead in error


def test_an_option_for_a_drafter_that_is_not_used_gives_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        parsed("--spec-type ngram-mod --spec-ngram-mod-n-max 20 --spec-ngram-shared")
        parsed("--spec-type ngram-cache --spec-ngram-shared -lcs file -lcd file")
        parsed("--spec-type ngram-map-k4v --spec-ngram-map-k4v-size-n 4 --spec-synth-len 2")
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING):
        parsed("--spec-type ngram-simple --spec-draft-n-max 64")
        parsed("--spec-type ngram-map-k4v --spec-ngram-map-k-size-n 4")
        parsed("--spec-type ngram-map-k -lcd file --spec-ngram-shared")
    assert caplog.messages == [
        "--spec-draft-n-max has no effect with --spec-type ngram-simple",
        "--spec-ngram-map-k-size-n has no effect with --spec-type ngram-map-k4v",
        "--spec-ngram-shared has no effect with --spec-type ngram-map-k",
        "--lookup-cache-dynamic has no effect with --spec-type ngram-map-k",
    ]


def test_sharing_is_off_unless_asked_for() -> None:
    assert not parsed("--spec-type ngram-mod").ngram_shared
    assert parsed("--spec-type ngram-mod --spec-ngram-shared").ngram_shared


@pytest.mark.parametrize(
    "names", [("-lcs", "-lcd"), ("--lookup-cache-static", "--lookup-cache-dynamic")]
)
def test_lookup_files_have_llama_servers_names(names: tuple[str, str]) -> None:
    settings = parsed(f"--spec-type ngram-cache {names[0]} a/b {names[1]} c")
    assert settings.lookup_cache_static == Path("a/b")
    assert settings.lookup_cache_dynamic == Path("c")
    assert parsed("").lookup_cache_static is parsed("").lookup_cache_dynamic is None


def test_synthetic_acceptance_is_given_as_rates_or_as_a_length() -> None:
    assert parsed("--spec-synth-rates 0.9,0.5,.25").synth_rates == (0.9, 0.5, 0.25)
    assert parsed("--spec-synth-len 2.5").synth_len == 2.5
    assert parsed("").synth_rates == ()
    assert parsed("").synth_len is None


@pytest.mark.parametrize("rates", ["0.5,0.9", "1.5", "-0.1", "nan"])
def test_impossible_rates_are_an_error_under_the_options_name(rates: str) -> None:
    with pytest.raises(InvalidParameterError, match="must") as caught:
        parsed(f"--spec-synth-rates={rates}")
    assert caught.value.name == "--spec-synth-rates"


@pytest.mark.parametrize("line", ["--spec-synth-rates 0.5,x", "--spec-synth-len x"])
def test_rates_that_are_no_numbers_are_an_error(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(line)
    assert "invalid" in capsys.readouterr().err
