"""The end is the end: nothing behind it is committed, whatever block it came in (theme E)."""

from collections.abc import Sequence as Series

import pytest

from surefoot.decoding import GREEDY, Ending, Finish, Round, Sequence, Transcript
from surefoot.drafting.scripted import ScriptedDrafter
from tests.support.adversary import AdversarialTarget, scripted
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FunctionDrafter, OracleDrafter
from tests.support.play import begin, generated, play_out

PROMPT = [3, 1, 4, 1, 5]
STOPPED = Finish("stop", "stop token")


def block(
    kind: str, text: Series[int], ending: Ending, *, prompt: Series[int] = PROMPT
) -> Sequence:
    """Play a target that says `text`, with a drafter that knows it, to the end."""
    whole = [*prompt, *text, 0]
    target = AdversarialTarget(simulated(kind), scripted(whole))
    sequence = begin(target, prompt, ending=ending, max_draft=48)
    play_out(target, [sequence], ScriptedDrafter([text]))
    absorbed = sequence.committed[: sequence.state_len]
    assert len(absorbed) < len(sequence.committed)
    assert target.runtime.state(0) == Oracle(kind).state(absorbed)
    return sequence


# Case E1


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_behind_an_accepted_end_are_never_committed(kind: str) -> None:
    x, end, y, z = 10, 63, 11, 12
    sequence = block(kind, [x, end, y, z], Ending(frozenset({end})))
    assert generated(sequence) == [x, end]
    assert sequence.finish == Finish("stop", "end of generation")
    assert sequence.counts.accepted == 2
    assert sequence.counts.accepted_by_position == [1, 1, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_goes_on_from_the_whole_answer(kind: str) -> None:
    """Case E1: after the end inside a block, what follows is as if it had come alone."""
    oracle = Oracle(kind)
    answer = oracle.text(PROMPT, 8)
    runtime = simulated(kind)
    ending = Ending(stop_tokens=frozenset({answer[4]}))
    sequence = begin(runtime, PROMPT, ending=ending)
    play_out(runtime, [sequence], ScriptedDrafter([answer]))
    kept = answer[: answer.index(answer[4]) + 1]
    assert generated(sequence) == kept
    turn = [*PROMPT, *kept, 7, 8]
    sequence.memory.settle(len(turn) - 1)
    following = Sequence([*turn], sequence.memory, GREEDY, Ending(max_tokens=10))
    play_out(runtime, [following])
    assert generated(following) == oracle.text(turn, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_of_nothing_but_ends_is_no_loop(kind: str) -> None:
    """Case E1, second half: 48 end tokens drafted, round after round."""
    settings = {"end_rate": 1 / 12}
    oracle = Oracle(kind, **settings)
    runtime = simulated(kind, **settings)
    ends = runtime.tokenizer.end_of_generation
    text = oracle.text(PROMPT, 200)
    expected = text[: 1 + next(at for at, token in enumerate(text) if token in ends)]
    sequence = begin(runtime, PROMPT, ending=Ending(ends), max_draft=48)
    drafter = ScriptedDrafter([[*ends] * 48], repeat=True)
    rounds = play_out(runtime, [sequence], drafter, most_rounds=len(expected))
    assert generated(sequence) == expected
    assert sequence.counts.accepted == 1
    assert len(rounds) == len(expected)


# Case E2


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_is_found_at_every_alignment_of_the_block(kind: str) -> None:
    oracle = Oracle(kind)
    text = oracle.text(PROMPT, 24)
    firsts = [at for at, token in enumerate(text) if token not in text[:at]]
    assert len(firsts) >= 6
    for at in firsts:
        for depth in range(1, 9):
            runtime = simulated(kind)
            ending = Ending(end_of_generation=frozenset({text[at]}))
            sequence = begin(runtime, PROMPT, ending=ending, max_draft=depth)
            play_out(runtime, [sequence], OracleDrafter({0: [*PROMPT, *text]}, 64))
            assert generated(sequence) == text[: at + 1]
            assert sequence.finish == Finish("stop", "end of generation")
            absorbed = sequence.committed[: sequence.state_len]
            assert runtime.state(0) == oracle.state(absorbed)


# Case E4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("cap", "finish", "length"),
    [(5, STOPPED, 3), (3, STOPPED, 3), (2, Finish("length", "max tokens"), 2)],
)
def test_the_first_end_in_a_block_is_the_reason(
    kind: str, cap: int, finish: Finish, length: int
) -> None:
    stop = 30
    text = [10, 11, stop, 20, 21, 22]
    ending = Ending(stop_tokens=frozenset({stop}), max_tokens=cap)
    sequence = block(kind, text, ending)
    assert (sequence.finish, generated(sequence)) == (finish, text[:length])


# Case E5


PIECES = {10: b"a", 11: b"#", 12: b"##", 13: b"###", 14: b"b ###", 15: b"x#", 16: b"#y"}


def piece(token: int) -> bytes:
    return PIECES.get(token, b".")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "kept", "shown"),
    [
        ([13, *[10] * 15], 1, b""),
        ([14, *[10] * 15], 1, b"b "),
        ([10, 15, 11, 16, *[10] * 12], 4, b"ax"),
        ([10, 11, 11, 10, 12, 11, *[10] * 10], 6, b"a##a"),
        ([10] * 14 + [12, 11], 16, b"a" * 14),
    ],
    ids=["first", "inside a piece", "over three tokens", "after a false start", "at the end"],
)
def test_a_stop_string_is_found_wherever_it_lies_in_a_block(
    kind: str, text: list[int], kept: int, shown: bytes
) -> None:
    transcript = Transcript(["###"])
    sequence = block(kind, text, Ending(transcript=transcript, piece=piece))
    assert generated(sequence) == text[:kept]
    assert sequence.finish == Finish("stop", "stop string")
    assert transcript.text == transcript.settled(0) == shown


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", range(1, 7))
def test_a_stop_string_over_two_blocks_is_found(kind: str, first: int) -> None:
    """The block border falls before, inside and behind "###"."""
    text = [10, 10, 11, 11, 11, 10, 10, 10]
    whole = [*PROMPT, *text, 0]
    target = AdversarialTarget(simulated(kind), scripted(whole))
    transcript = Transcript(["###"])
    sequence = begin(target, PROMPT, ending=Ending(transcript=transcript, piece=piece))
    play_out(target, [sequence], ScriptedDrafter([text[: first - 1], text[first:]]))
    assert generated(sequence) == text[:5]
    assert transcript.text == b"aa"


# Cases E7 and E9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", range(1, 21))
def test_exactly_max_tokens_are_generated_at_every_alignment(kind: str, most: int) -> None:
    oracle = Oracle(kind)
    text = oracle.text(PROMPT, 24)
    runtime = simulated(kind)
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=most), max_draft=4)
    rounds = play_out(runtime, [sequence], OracleDrafter({0: [*PROMPT, *text]}, 64))
    delivered = [token for (outcome,) in rounds for token in outcome.tokens]
    assert delivered == generated(sequence) == text[:most]
    assert sequence.finish == Finish("length", "max tokens")
    # No token is drafted in vain: the target's own choice needs room, too.
    assert sequence.counts.accepted == sequence.counts.drafted
    assert len(rounds) == -(-most // 5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_is_one_token_whatever_the_drafter_has(kind: str) -> None:
    """Case E9: with max_tokens 1 a draft of 4 has no room."""
    text = Oracle(kind).text(PROMPT, 8)
    runtime = simulated(kind)
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=1))
    play_out(runtime, [sequence], ScriptedDrafter([text[:4]]))
    assert generated(sequence) == text[:1]
    assert sequence.counts.drafted == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_draft_of_one_token_is_rejected(kind: str) -> None:
    """Case E9: the first draft token is verified like all others."""
    text = Oracle(kind).text(PROMPT, 8)
    runtime = simulated(kind)
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=8))
    play_out(runtime, [sequence], FunctionDrafter(lambda s, _: [(s.committed[-1] + 33) % 64]))
    assert generated(sequence) == text
    assert sequence.counts.accepted == 0


def test_the_context_ends_a_request_at_its_last_place() -> None:
    text = Oracle("hybrid").text(PROMPT, 40)
    for depth in range(1, 9):
        runtime = simulated("hybrid", context_length=24)
        sequence = begin(runtime, PROMPT, ending=Ending(max_length=24), max_draft=depth)
        play_out(runtime, [sequence], OracleDrafter({0: [*PROMPT, *text]}, 64))
        assert len(sequence.committed) == 24
        assert sequence.finish == Finish("length", "context full")


def test_one_sequence_ends_while_its_neighbours_go_on() -> None:
    """The shorter ones leave; the others' text is their own."""
    kind = "hybrid"
    prompts = [[slot, 1, 2] for slot in range(4)]
    texts = {slot: [*prompts[slot], *Oracle(kind).text(prompts[slot], 40)] for slot in range(4)}
    runtime = simulated(kind, slots=4)
    sequences = [
        begin(
            runtime,
            prompts[slot],
            slot=slot,
            slots=4,
            ending=Ending(max_tokens=5 + 7 * slot),
            max_draft=slot + 1,
        )
        for slot in range(4)
    ]
    drafter = OracleDrafter(texts, 64, right=lambda position: position % 6 != 0)
    play_out(runtime, sequences, drafter)
    for slot, sequence in enumerate(sequences):
        assert sequence.committed == texts[slot][: 3 + 5 + 7 * slot]


def test_a_round_emits_its_accepted_tokens_at_once() -> None:
    """Promise 3: a partial acceptance is no reason to wait."""
    kind = "recurrent"
    text = Oracle(kind).text(PROMPT, 8)
    runtime = simulated(kind)
    sequence = begin(runtime, PROMPT)
    outcome = Round(runtime, ScriptedDrafter([[*text[:3], 60, 61]])).play([sequence])[0]
    assert outcome.tokens == text[:4]
    assert outcome.accepted == 3
