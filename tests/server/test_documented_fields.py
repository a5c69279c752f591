"""The page about serving names every field that is read and every endpoint, and no other."""

import re
from pathlib import Path

import pytest

from surefoot.server.schemas import ChatBody, CompletionBody
from tests.server.running import Running

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


def endpoints() -> str:
    return PAGE.read_text().partition("## Endpoints")[2].partition("\n## ")[0]


def test_each_endpoint_is_described_and_no_other(server: Running) -> None:
    described = set(re.findall(r"^\| `([A-Z]+ /[^`]*)`", endpoints(), re.MULTILINE))
    paths = server.client.get("/openapi.json").json()["paths"]
    there = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert described == {*there, "GET /docs"}


def test_what_is_said_not_to_exist_does_not(server: Running) -> None:
    missing = endpoints().partition("do not exist here")[2].partition("and\nthe paths")[0]
    names = re.findall(r"`(/[^`]+)`", missing)
    assert len(names) > 10
    for name in names:
        assert server.client.get(name).status_code == 404, name
        assert server.client.post(name, json={}).status_code == 404, name
    assert server.client.post("/props", json={}).status_code == 405
