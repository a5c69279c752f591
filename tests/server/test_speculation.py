"""What a request may say about its own drafts, and what it hears of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from surefoot.decoding import Drafter
from surefoot.drafting.chain import Chain
from surefoot.drafting.ngram_map_k import NgramMapK
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.running import Running

REQUEST: dict[str, Any] = {"prompt": "once upon", "seed": 4, "max_tokens": 60}


@pytest.fixture(scope="module")
def chained() -> Iterator[Running]:
    """A server with two drafters, of which the first has a draft wherever the second has."""
    runtime = SimulatedRuntime(vocabulary_size=512, slots=2, context_length=256, end_rate=0)
    drafters: list[Drafter] = [NgramSimple(size_n=2), NgramMapK(size_n=2)]
    with Running(runtime, Chain(drafters)) as running:
        yield running


def drafted(answer: dict[str, Any]) -> dict[str, int]:
    parts = answer["timings"]["by_drafter"]
    return {name: part["drafted"] for name, part in parts.items()}


def test_a_request_chooses_among_the_drafters_and_the_text_stays_the_same(chained: Running) -> None:
    plain = chained.answer("completions", **REQUEST, speculative=False)
    texts = {plain["choices"][0]["text"]}
    assert drafted(plain) == {}
    for names in (["ngram-simple"], ["ngram-map-k"]):
        answer = chained.answer("completions", **REQUEST, speculative={"types": names})
        assert list(drafted(answer)) == names
        texts.add(answer["choices"][0]["text"])
    assert len(texts) == 1


def test_llama_servers_spelling_is_read_too(chained: Running) -> None:
    fields = {"speculative.types": ["ngram-map-k"], "speculative.n_max": 1}
    answer = chained.answer("completions", **REQUEST, **fields)
    assert list(drafted(answer)) == ["ngram-map-k"]
    assert len(answer["timings"]["drafted_by_position"]) == 1
    assert answer["timings"]["draft_n_max"] == 1


@pytest.mark.parametrize(
    ("fields", "drafter", "depth"),
    [
        ({}, "ngram-simple,ngram-map-k", 9),
        ({"speculative": {"types": ["ngram-map-k"]}}, "ngram-map-k", 3),
        ({"speculative": {"n_max": 2}}, "ngram-simple,ngram-map-k", 2),
        ({"speculative": {"types": ["ngram-map-k"], "n_max": 7}}, "ngram-map-k", 3),
        ({"speculative": False}, None, 0),
        ({"speculative": {"n_max": 0}}, None, 0),
        ({"speculative": {"types": []}}, None, 0),
    ],
    ids=str,
)
def test_the_answer_says_who_might_draft_for_this_request_and_how_deep(
    fields: dict[str, Any], drafter: str | None, depth: int
) -> None:
    runtime = SimulatedRuntime(vocabulary_size=512)
    drafters: list[Drafter] = [NgramSimple(size_n=2, size_m=9), NgramMapK(size_n=2, size_m=3)]
    with Running(runtime, Chain(drafters)) as server:
        answer = server.answer("completions", **REQUEST, **fields)
    for part in (answer["timings"], answer["surefoot"]):
        assert part["drafter"] == drafter
        assert part["draft_n_max"] == depth
        assert len(part["drafted_by_position"]) <= depth


def test_where_nobody_can_draft_nobody_is_named() -> None:
    runtime = SimulatedRuntime("recurrent", vocabulary_size=512, can_fork=False)
    with Running(runtime, NgramSimple(size_n=2)) as server:
        timings = server.answer("completions", **REQUEST)["timings"]
    assert (timings["drafter"], timings["draft_n_max"]) == (None, 0)


def test_the_servers_cap_holds(chained: Running) -> None:
    answer = chained.answer("completions", **REQUEST, speculative={"n_max": 1000})
    cap = chained.engine.max_draft
    assert answer["timings"]["draft_n_max"] == cap
    assert len(answer["timings"]["drafted_by_position"]) <= cap


def test_no_types_are_no_speculation_and_the_reason_is_told(chained: Running) -> None:
    answer = chained.answer("completions", **REQUEST, speculative={"types": []})
    assert drafted(answer) == {}
    assert answer["timings"]["speculation_off"] == "the request turned it off"


@pytest.mark.parametrize(
    "fields",
    [
        {"speculative": {"types": ["draft-mtp"]}},
        {"speculative": {"types": "ngram-simple"}},
        {"speculative": {"depth": 3}},
        {"speculative.p_min": 2},
        {"speculative.n_max": -1},
        {"speculative": False, "speculative.n_max": 3},
    ],
    ids=str,
)
def test_what_can_not_be_used_is_a_400(chained: Running, fields: dict[str, Any]) -> None:
    response = chained.post("completions", {**REQUEST, **fields})
    assert response.status_code == 400
    assert "speculative" in response.json()["error"]["message"]


def test_props_say_who_drafts_how_deep_and_how_drafts_are_undone(chained: Running) -> None:
    props = chained.client.get("/props").json()
    assert props["speculation"]["drafters"] == ["ngram-simple", "ngram-map-k"]
    assert props["speculation"]["n_max"] == chained.engine.max_draft
    assert props["speculation"]["off"] is None
    assert props["rollback"]["kind"] == chained.engine.runtime.rollback.kind
    assert props["total_slots"] == 2


def test_props_say_why_nothing_is_drafted() -> None:
    with Running(SimulatedRuntime(vocabulary_size=512)) as server:
        speculation = server.client.get("/props").json()["speculation"]
    assert speculation["drafters"] == []
    assert speculation["off"] == "the server runs without a drafter"
