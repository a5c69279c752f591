"""Records: written beside the engine, read back whole, and run again with the same text."""

import errno
import json
import logging
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from surefoot.decoding import Sampling, ScoreWish
from surefoot.engine import Engine, Generation
from surefoot.engine.records import (
    Record,
    RecordedDrafter,
    Recorder,
    RecordError,
    read_record,
    replay,
)
from tests.engine.playing import ALL_KINDS, Asker, often_right, run_all, runtime_of
from tests.support.kinds import KINDS

PROMPT = [300, 301, 302]
OTHER = [310, 311]
FACTS = {"model": {"path": "model.gguf"}}


def recorded(
    folder: Path, kind: str = "hybrid", **fields: Any
) -> tuple[list[Generation], list[Path]]:
    """Two requests side by side, and their records."""
    asker = Asker(kind, length=40)
    drafter = asker.drafter([PROMPT, OTHER], often_right)
    engine = Engine(runtime_of(kind, slots=2), drafter, max_draft=4)
    recorder = Recorder(folder, FACTS)
    engine.observe(recorder)
    generations = run_all(engine, [asker.request(PROMPT, **fields), asker.request(OTHER)])
    recorder.close()
    return generations, sorted(folder.iterdir(), key=lambda path: int(path.stem.split("-")[-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_tells_what_was_asked_and_what_each_round_did(kind: str, tmp_path: Path) -> None:
    generations, paths = recorded(tmp_path, kind)
    for generation, path in zip(generations, paths, strict=True):
        record = read_record(path)
        counts = generation.summary.counts
        assert record.request == generation.request
        assert record.tokens == generation.tokens
        assert record.facts == FACTS
        assert len(record.rounds) == counts.rounds
        assert sum(len(played.draft) for played in record.rounds) == counts.drafted
        assert sum(played.accepted for played in record.rounds) == counts.accepted > 0
        assert any(len(played.shape) == 2 for played in record.rounds)
        assert record.end is not None
        assert record.end["generated"] == len(generation.tokens)


def test_every_field_of_a_request_comes_back(tmp_path: Path) -> None:
    sampling = Sampling(seed=7, temperature=0.9, logit_bias=((3, -2.5), (4, float("-inf"))))
    fields = {
        "sampling": sampling,
        "stops": ("x",),
        "stop_tokens": frozenset({9}),
        "wish": ScoreWish(3),
        "message_starts": (1, 2),
        "priority": 4,
        "deadline_seconds": 60.0,
    }
    asker = Asker("attention", length=10)
    engine = Engine(runtime_of("attention"))
    recorder = Recorder(tmp_path, FACTS)
    engine.observe(recorder)
    generation = engine.run(asker.request(PROMPT, **fields))
    recorder.close()
    [path] = tmp_path.iterdir()
    assert read_record(path).request == generation.request


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_record_runs_again_with_the_same_text_and_rounds(kind: str, tmp_path: Path) -> None:
    _, paths = recorded(tmp_path, kind, sampling=Sampling(seed=5, temperature=0.7))
    record = read_record(paths[0])
    runtime = runtime_of(kind)
    plain, drafted = replay(runtime, record, RecordedDrafter(record))
    assert plain.verdict == drafted.verdict == "equal"
    assert (plain.accepted, plain.rounds) == (0, len(record.tokens))
    assert drafted.accepted == sum(played.accepted for played in record.rounds)
    assert drafted.rounds == len(record.rounds)


def test_another_text_is_told_by_its_first_token(tmp_path: Path) -> None:
    _, paths = recorded(tmp_path)
    lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    rounds = [line["round"] for line in lines if "round" in line]
    changed = rounds[3]
    changed["tokens"][0] += 1
    paths[0].write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = read_record(paths[0])
    for found in replay(runtime_of("hybrid"), record, RecordedDrafter(record)):
        assert found.verdict == "different"
        assert found.difference is not None
        assert found.difference.position == changed["at"]
        assert found.difference.recorded == changed["tokens"][0]
        assert found.difference.now == changed["tokens"][0] - 1


def test_what_is_no_whole_record_is_refused_in_words(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    _, paths = recorded(tmp_path)
    data = paths[0].read_bytes()
    lines = data.splitlines(keepends=True)
    path = tmp_path / "odd"
    for content, reason in (
        (b"", "no record"),
        (b"hello\n", "no record"),
        (b"{}\n", "no record"),
        (lines[0].replace(b'"version":1', b'"version":9'), "version 9"),
        (lines[0].replace(b'"prompt"', b'"promt"'), "line 1 describes no request"),
        (b"".join([lines[0], *lines[3:]]), "begins at position"),
        (data + b"{}\n", "comes after the end"),
        (lines[0] + b"[]\n", "line 2 is no JSON object"),
        (lines[0] + b'{"odd": 1}\n', "line 2 is of no known kind"),
    ):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=reason):
            read_record(path)
    for _ in range(300):  # nothing but words, whatever is broken
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :])
        with suppress(RecordError):
            read_record(path)


def test_a_record_that_breaks_off_is_good_up_to_there(tmp_path: Path) -> None:
    generations, paths = recorded(tmp_path)
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[: len(data) // 2])
    record = read_record(paths[0])
    assert record.end is None
    assert 0 < len(record.tokens) < len(generations[0].tokens)
    assert record.tokens == generations[0].tokens[: len(record.tokens)]
    for found in replay(runtime_of("hybrid"), record, RecordedDrafter(record)):
        assert found.verdict == "equal"


@pytest.mark.parametrize(
    "spoil",
    [lambda _: None, lambda patch: patch.setattr(os, "open", _full)],
    ids=["read-only", "full"],
)
def test_a_disk_that_takes_nothing_more_costs_one_warning_and_no_request(
    spoil: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    asker = Asker("hybrid", length=40)
    engine = Engine(runtime_of("hybrid"))
    recorder = Recorder(tmp_path / "records", FACTS)
    if "read-only" in request.node.name:
        (tmp_path / "records").rmdir()  # gone is as good as read-only, for root too
    spoil(monkeypatch)
    engine.observe(recorder)
    with caplog.at_level(logging.WARNING):
        for generation in run_all(engine, [asker.request(PROMPT), asker.request(OTHER)]):
            assert generation.tokens == asker.says(generation.request.prompt)
        recorder.close()
    assert caplog.text.count("records are off from now on") == 1


def _full(*_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_stays_within_its_size_and_says_that_it_is_not_whole(tmp_path: Path) -> None:
    asker = Asker("attention", length=200)
    engine = Engine(runtime_of("attention"))
    recorder = Recorder(tmp_path, FACTS, most_bytes=6000)
    engine.observe(recorder)
    engine.run(asker.request(PROMPT))
    recorder.close()
    [path] = tmp_path.iterdir()
    assert path.stat().st_size < 6000 + 2000
    record: Record = read_record(path)
    assert record.events[-1]["event"] == "truncated"
    assert record.end is not None
    assert path.stat().st_mode & 0o077 == 0, "a record holds somebody's prompt"


def test_a_folder_that_can_not_be_used_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="can't make the folder"):
        Recorder(tmp_path / "file" / "records", FACTS)


@pytest.mark.parametrize(
    ("fields", "reason"), [({"rule": "rejection"}, "by rejection"), ({"max_tokens": 1}, "")]
)
def test_what_can_not_be_run_again_is_said(
    fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    _, paths = recorded(tmp_path, **fields)
    record = read_record(paths[0])
    if not reason:
        assert len(replay(runtime_of("hybrid"), record, RecordedDrafter(record))) == 2
        return
    with pytest.raises(RecordError, match=reason):
        replay(runtime_of("hybrid"), record, RecordedDrafter(record))
