"""From names and parameters to a drafter."""

import pytest

from surefoot.decoding import Drafter, InvalidParameterError
from surefoot.drafting.base import FACTORIES, make_drafter
from surefoot.drafting.settings import LIMITS, SpeculationSettings
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


@pytest.mark.parametrize("kind", FACTORIES)
def test_each_kind_is_made_under_its_name(kind: str) -> None:
    assert made(SpeculationSettings(types=(kind,))).name == kind


def test_several_kinds_are_chained_in_the_users_order_each_once() -> None:
    settings = SpeculationSettings(types=("ngram-mod", "ngram-simple", "ngram-mod"))
    assert made(settings).name == "ngram-mod,ngram-simple"


def test_an_unknown_kind_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(InvalidParameterError, match="none, ngram-simple, ngram-mod") as caught:
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
    drafter = made(SpeculationSettings(types=("ngram-mod",), ngram_mod_shared=shared))
    draft(drafter, sequence_of(TEXT))
    assert draft(drafter, sequence_of(TEXT[:24])) == expected


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
