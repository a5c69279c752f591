"""The table has a fixed size and forgets by being overwritten."""

from surefoot.drafting.ngram_table import PLACES, NgramTable


def test_it_has_as_many_places_as_llama_servers() -> None:
    assert PLACES == 4 * 1024 * 1024


def test_it_tells_token_0_from_nothing() -> None:
    table = NgramTable(8)
    table.update([(3, 0)])
    assert table.get(3) == 0
    assert table.get(4) is None


def test_of_two_ngrams_in_one_place_the_later_one_is_known() -> None:
    table = NgramTable(8)
    table.update([(3, 1), (-5, 2)])
    assert table.get(3) == table.get(-5) == 2
    assert table.occupancy == 1 / 8


def test_reset_forgets_everything() -> None:
    table = NgramTable(8)
    table.update([(key, 7) for key in range(100)])
    assert table.occupancy == 1
    table.reset()
    assert table.occupancy == 0
    assert [table.get(key) for key in range(8)] == [None] * 8
