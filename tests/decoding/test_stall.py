"""Case C1 to C3: the stall of "restore, replay, verify again", and that surefoot can't have it.

The target has near ties that fall by the width of the pass and by where the cells lie, which every
restore moves.
"""

import pytest

from surefoot.decoding import Ending
from surefoot.runtime.simulated import NearTie, SimulatedRuntime
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import OracleDrafter
from tests.support.play import begin, play_out
from tests.support.restore_replay import RestoreReplayServer

PROMPT = [1, 2, 3]
LENGTH = 40
TIES = [NearTie(12, (5, 6)), NearTie(13, (7, 8)), NearTie(25, (9, 10))]
PATIENCE = 200


def target(kind: str, *, width_noise: float, layout_noise: float) -> SimulatedRuntime:
    return simulated(kind, near_ties=TIES, width_noise=width_noise, layout_noise=layout_noise)


def drafter(kind: str) -> OracleDrafter:
    """Knows the plain text, but always guesses wrong at the ties."""
    text = [*PROMPT, *Oracle(kind, near_ties=TIES).text(PROMPT, LENGTH)]
    ties = {tie.position for tie in TIES}
    return OracleDrafter({0: text}, 64, right=lambda position: position not in ties)


def serve_by_replay(kind: str, *, width_noise: float, layout_noise: float) -> RestoreReplayServer:
    runtime = target(kind, width_noise=width_noise, layout_noise=layout_noise)
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=LENGTH), max_draft=4)
    return RestoreReplayServer(runtime, drafter(kind), sequence)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tie_that_hangs_on_layout_stalls_replays_and_never_surefoot(kind: str) -> None:
    server = serve_by_replay(kind, width_noise=0.1, layout_noise=0.1)
    assert server.stalls(PATIENCE), "the counter-example should stall"
    assert len(set(server.restores[-PATIENCE:])) == 1
    assert server.sequence.finish is None

    runtime = target(kind, width_noise=0.1, layout_noise=0.1)
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=LENGTH), max_draft=4)
    prefill = runtime.passes
    rounds = play_out(runtime, [sequence], drafter(kind), most_rounds=LENGTH)
    assert sequence.generated == LENGTH
    assert runtime.passes - prefill == len(rounds)
    assert all(len(outcome.tokens) >= 1 for (outcome,) in rounds)
    assert 0 < sequence.counts.rollbacks <= sequence.counts.rounds
    assert sequence.counts.near_ties >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_tie_that_hangs_on_width_alone_costs_replays_passes_and_surefoot_none(kind: str) -> None:
    server = serve_by_replay(kind, width_noise=0.1, layout_noise=0.0)
    assert not server.stalls(PATIENCE)
    emitting = server.passes - server.wasted
    assert server.wasted >= len(TIES)

    runtime = target(kind, width_noise=0.1, layout_noise=0.0)
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=LENGTH), max_draft=4)
    prefill = runtime.passes
    rounds = play_out(runtime, [sequence], drafter(kind))
    print(f"{kind}: replays {server.passes} passes, {server.wasted} wasted; ours {len(rounds)}")
    wasted = runtime.passes - prefill - sum(bool(outcome.tokens) for (outcome,) in rounds)
    assert wasted == 0
    assert runtime.passes - prefill < server.passes
    assert emitting < server.passes


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_replays_only_waste_passes_and_both_say_the_same(kind: str) -> None:
    server = serve_by_replay(kind, width_noise=0.0, layout_noise=0.0)
    assert not server.stalls(PATIENCE)
    runtime = target(kind, width_noise=0.0, layout_noise=0.0)
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=LENGTH), max_draft=4)
    rounds = play_out(runtime, [sequence], drafter(kind))
    assert sequence.committed == server.sequence.committed
    # Case D2: a pass for each partial acceptance on top, against none.
    assert server.wasted == len(server.restores) >= 2
    assert all(len(outcome.tokens) >= 1 for (outcome,) in rounds)


@pytest.mark.parametrize("kind", KINDS)
def test_text_first_parts_from_the_oracles_at_a_counted_near_tie(kind: str) -> None:
    """Case F2: what noise may change, it changes only where the near-tie rule says so."""
    parted = 0
    for seed in range(30):
        noise = {"seed": seed, "width_noise": 0.05, "layout_noise": 0.05, "vocabulary_size": 16}
        choices = Oracle(kind, **noise).choices(PROMPT, LENGTH)
        plain = [*PROMPT, *(choice.token for choice in choices)]
        runtime = simulated(kind, **noise)
        sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=LENGTH), max_draft=4)
        play_out(runtime, [sequence], OracleDrafter({0: plain}, 16, right=lambda at: at % 5 != 0))
        pairs = enumerate(zip(plain, sequence.committed, strict=True))
        first = next((at for at, (ours, theirs) in pairs if ours != theirs), None)
        if first is not None:
            parted += 1
            assert choices[first - len(PROMPT)].near_tie
            assert first in sequence.counts.near_tie_positions
    print(f"{kind}: {parted} of 30 texts parted")
    assert parted > 0
