"""From names and parameters to a drafter."""

from pathlib import Path
from typing import Any

import pytest

from surefoot.decoding import Drafter, InvalidParameterError
from surefoot.drafting.base import FACTORIES, Resources, make_drafter
from surefoot.drafting.closing import close_drafter
from surefoot.drafting.lookup_file import LookupFileError, save_counts
from surefoot.drafting.ngram_counts import NgramCounts, key_of
from surefoot.drafting.settings import LIMITS, SpeculationSettings
from surefoot.drafting.synthetic import synthetic_acceptance
from tests.drafting.texts import draft, sequence_of

TEXT = list(range(100))


def made(settings: SpeculationSettings) -> Drafter:
    drafter = make_drafter(settings)
    assert drafter is not None
    return drafter


def test_none_gives_no_drafter() -> None:
    for types in (("none",), (), ("ngram-mod", "none")):
        settings = SpeculationSettings(types=types)
        assert make_drafter(settings) is None
        assert settings.n_max == 0


@pytest.mark.parametrize("kind", [*FACTORIES, "ngram-cache"])
def test_each_kind_is_made_under_its_name(kind: str) -> None:
    assert made(SpeculationSettings(types=(kind,))).name == kind


def test_several_kinds_are_chained_in_the_users_order_each_once() -> None:
    settings = SpeculationSettings(types=("ngram-mod", "ngram-simple", "ngram-mod"))
    assert made(settings).name == "ngram-mod,ngram-simple"


def test_kinds_that_run_a_model_come_last_as_in_llama_server() -> None:
    types = ("draft-mtp", "ngram-mod", "draft-simple", "ngram-simple", "draft-mtp")
    chosen = SpeculationSettings(types=types).chosen
    assert chosen == ("ngram-mod", "ngram-simple", "draft-mtp", "draft-simple")


def test_an_unknown_kind_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(InvalidParameterError, match="none, ngram-simple, ngram-map-k") as caught:
        make_drafter(SpeculationSettings(types=("ngram-simple", "ngram-magic")))
    assert "'ngram-magic'" in str(caught.value)


def test_parameters_reach_the_drafters() -> None:
    simple = SpeculationSettings(ngram_simple_size_n=5, ngram_simple_size_m=7)
    assert draft(made(simple), sequence_of([*TEXT, 0, 1, 2, 3])) == []
    assert draft(made(simple), sequence_of([*TEXT, 0, 1, 2, 3, 4])) == list(range(5, 12))
    assert draft(
        made(SpeculationSettings(ngram_simple_size_n=5, ngram_simple_min_hits=2)),
        sequence_of([*TEXT, 0, 1, 2, 3, 4]),
    ) == []  # fmt: skip
    mod = SpeculationSettings(
        types=("ngram-mod",), ngram_mod_n_match=5, ngram_mod_n_min=2, ngram_mod_n_max=7
    )
    assert draft(made(mod), sequence_of([*TEXT, 0, 1, 2, 3, 4])) == list(range(5, 12))


@pytest.mark.parametrize(("shared", "expected"), [(False, []), (True, list(range(24, 88)))])
def test_sharing_is_a_setting(shared: bool, expected: list[int]) -> None:
    drafter = made(SpeculationSettings(types=("ngram-mod",), ngram_shared=shared))
    draft(drafter, sequence_of(TEXT))
    assert draft(drafter, sequence_of(TEXT[:24])) == expected


@pytest.mark.parametrize(("shared", "expected"), [(False, []), (True, [3, 1, 2])])
def test_sharing_is_a_setting_of_the_cache_too(shared: bool, expected: list[int]) -> None:
    drafter = made(SpeculationSettings(types=("ngram-cache",), ngram_shared=shared))
    draft(drafter, sequence_of([1, 2, 3] * 3))
    assert draft(drafter, sequence_of([1, 2]), 3) == expected


def test_lookup_files_reach_the_cache_and_are_saved_when_it_is_closed(tmp_path: Path) -> None:
    static, dynamic = tmp_path / "static", tmp_path / "dynamic"
    counts = NgramCounts()
    counts.put(key_of([1, 2]), {9: 5})
    save_counts(counts, static)
    settings = SpeculationSettings(
        types=("ngram-simple", "ngram-cache"),
        lookup_cache_static=static,
        lookup_cache_dynamic=dynamic,
    )
    first = made(settings)
    assert draft(first, sequence_of([1, 2]), 1) == [9]
    draft(first, sequence_of([5, 6, 7] * 3))
    close_drafter(first)
    assert draft(made(settings), sequence_of([5, 6]), 3) == [7, 5, 6]


@pytest.mark.parametrize("field", ["lookup_cache_static", "lookup_cache_dynamic"])
def test_a_lookup_file_for_another_model_is_an_error(field: str, tmp_path: Path) -> None:
    counts = NgramCounts()
    counts.put(key_of([1, 2]), {9: 5})
    save_counts(counts, tmp_path / "file")
    path: dict[str, Any] = {field: tmp_path / "file"}
    settings = SpeculationSettings(types=("ngram-cache",), **path)
    with pytest.raises(LookupFileError, match="made for another model"):
        make_drafter(settings, Resources(vocabulary_size=9))


def test_drafters_that_need_no_closing_are_closed_without_harm() -> None:
    close_drafter(None)
    close_drafter(made(SpeculationSettings(types=("ngram-simple",))))
    close_drafter(made(SpeculationSettings(types=("ngram-simple", "ngram-cache"))))


def test_synthetic_acceptance_is_made_of_rates_or_of_a_length() -> None:
    rates = SpeculationSettings(types=("ngram-cache",), synth_rates=(0.5,) * 8)
    length = SpeculationSettings(types=("ngram-cache",), synth_len=3.0)
    for settings, mean in ((rates, 5.0), (length, 3.0)):
        made_of = synthetic_acceptance(settings)
        assert made_of is not None
        assert made_of.mean_length == pytest.approx(mean)
    assert synthetic_acceptance(SpeculationSettings()) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"synth_rates": (0.5,) * 7}, "spec-synth-rates: .* each of the 8 tokens .* has 7"),
        ({"synth_len": 9.5}, "spec-synth-len: must be between 1 and 9"),
        ({"synth_len": 0.5}, "spec-synth-len: must be between 1 and 9"),
        ({"synth_len": float("nan")}, "spec-synth-len: must be between 1 and 9"),
        ({"synth_len": 2.0, "types": ("none",)}, "spec-synth-len: needs a drafter"),
    ],
)
def test_synthetic_acceptance_that_does_not_fit_is_an_error(
    wrong: dict[str, Any], message: str
) -> None:
    settings = SpeculationSettings(**{"types": ("ngram-cache",), **wrong})
    with pytest.raises(InvalidParameterError, match=message):
        synthetic_acceptance(settings)


def test_rates_and_length_exclude_each_other() -> None:
    with pytest.raises(InvalidParameterError, match="can't go together"):
        SpeculationSettings(synth_rates=(0.5,), synth_len=1.5)


def test_n_max_is_the_longest_draft_that_a_chosen_drafter_proposes() -> None:
    assert SpeculationSettings(types=("ngram-simple",)).n_max == 48
    assert SpeculationSettings(types=("ngram-mod",)).n_max == 64
    both = SpeculationSettings(types=("ngram-mod", "ngram-simple"), ngram_mod_n_max=20)
    assert both.n_max == 48


@pytest.mark.parametrize("field", LIMITS)
def test_a_number_outside_its_range_is_an_error_that_says_the_range(field: str) -> None:
    least, most = LIMITS[field]
    for value in (least - 1, most + 1):
        with pytest.raises(InvalidParameterError, match=rf"{field}: .*{least} and {most}"):
            SpeculationSettings(**{field: value})  # type: ignore[arg-type]
