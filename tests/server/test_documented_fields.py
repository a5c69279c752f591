"""The page about serving names every field that is read, and no other."""

import re
from pathlib import Path

import pytest

from surefoot.server.schemas import ChatBody, CompletionBody

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
FIELDS = {*ChatBody.model_fields, *CompletionBody.model_fields}


def documented() -> set[str]:
    """The names in the first column of the tables of fields."""
    section = PAGE.read_text().partition("## Fields of a request")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([a-z_]+)", cell)}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_each_field_is_described(name: str) -> None:
    assert name in documented()


def test_no_field_is_described_that_is_not_read() -> None:
    assert documented() - FIELDS == set()
