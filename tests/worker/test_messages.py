"""What is sent arrives as it was, of the same types."""

import math
import socket
import threading

import pytest

from surefoot.constraints import Calls, ControlSpec, Grammar, Reasoning
from surefoot.decoding import Counts, DraftWishes, Finish, Sampling, Scores, ScoreWish
from surefoot.decoding.counts import DrafterCounts
from surefoot.engine import (
    Agreement,
    Engine,
    Facts,
    Figures,
    GenerationState,
    Health,
    Progress,
    Request,
    Resumed,
    StalledSlot,
    Summary,
)
from surefoot.runtime.simulated import SimulatedRuntime
from surefoot.worker import Channel, ChannelClosedError
from surefoot.worker.messages import (
    Age,
    Begun,
    Cancel,
    Failed,
    Message,
    Ready,
    Sign,
    Stop,
    Submit,
    Told,
    decode,
    encode,
)

REQUEST = Request(
    prompt=(1, 2, 3),
    sampling=Sampling(seed=2**64 - 1, logit_bias=((5, -math.inf),), dry_sequence_breakers=("é",)),
    max_tokens=None,
    stops=("stop", "\n"),
    stop_tokens=frozenset({7, 8}),
    max_draft=3,
    wishes=DraftWishes(frozenset({"draft-mtp"}), 1, 0.5),
    exact="strict",
    control=ControlSpec(
        Grammar("json_schema", "{}"),
        Reasoning("<t>", "</t>", opened=True, budget=0, message="é"),
        Calls(("a", "b"), Grammar("choice", "[]"), required=True, parallel=False),
    ),
    wish=ScoreWish(3, post_sampling=True),
    score_prompt=True,
    markup=frozenset({9}),
    resumed=Resumed((4, 5), (3,), 9.5),
)
SUMMARY = Summary(
    prompt_tokens=3,
    exact="strict",
    counts=Counts(
        rounds=2, by_drafter={"x": DrafterCounts(1, 2, 3, "why")}, near_tie_positions=[4]
    ),
)
PROGRESS = Progress(
    tokens=[1, 2],
    accepted=1,
    state=GenerationState.FINISHED,
    scores=[Scores(-math.inf), Scores(-0.25, ((1, -0.25), (2, -1.5)))],
    near_ties=[7],
    mu=10.25,
    prompt_scores=[Scores(-1.0)],
    summary=SUMMARY,
    finish=Finish("stop", "stop string"),
    error=None,
    retry_after=3,
)
CACHE = Engine(SimulatedRuntime("hybrid")).cache.describe()
MESSAGES: list[Message] = [
    Submit([1, 2], [REQUEST, Request((1,), rule="rejection")], [Age(1.5, 0.5), Age(0.25)]),
    Cancel(3),
    Stop(),
    Ready(Facts.of(Engine(SimulatedRuntime("windowed", vocabulary_size=300)))),
    Failed("it can't", "--exact"),
    Begun(4),
    Told(
        [(1, PROGRESS), (2, Progress([], 0, GenerationState.RUNNING, [], []))],
        Sign(
            Figures(4, 5, 6, 7, Agreement(1, 2, 3, 4, 5, [6]), {"circles": 1}, {"same": 2}, CACHE),
            Health("degraded", stalled=[StalledSlot(1, 2, 3.5, 4.5, "prefill", "it waits")]),
        ),
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    arrived = decode(encode(message))
    assert arrived == message
    assert repr(arrived) == repr(message)  # of the same types, all the way down


def test_messages_come_in_order_however_the_stream_is_cut() -> None:
    left, right = socket.socketpair()
    channel = Channel(right)
    data = b"".join(len(m).to_bytes(4, "little") + m for m in map(encode, MESSAGES))

    def send() -> None:
        for byte in data[:-1]:
            left.sendall(bytes([byte]))

    sender = threading.Thread(target=send)
    sender.start()
    arrived = [channel.receive(5.0) for _ in MESSAGES[:-1]]
    while sender.is_alive():
        assert channel.receive(0.05) is None
    left.send(data[-1:])
    assert [*arrived, channel.receive(1.0)] == MESSAGES
    left.close()
    with pytest.raises(ChannelClosedError):
        channel.receive(1.0)
    channel.close()


def test_what_was_sent_before_the_end_is_still_received() -> None:
    left, right = (Channel(end) for end in socket.socketpair())
    right.send(Stop())  # unread by the one who goes
    for message in MESSAGES:
        left.send(message)
    left.close()
    assert [right.receive(1.0) for _ in MESSAGES] == MESSAGES
    for _ in range(2):
        with pytest.raises(ChannelClosedError):
            right.receive(1.0)
    with pytest.raises(ChannelClosedError):
        right.send(Stop())
    right.close()


def test_large_messages_pass_while_both_sides_send() -> None:
    left, right = (Channel(end) for end in socket.socketpair())
    large = Submit([1], [Request(tuple(range(200_000)))], [Age(0.0)])
    thread = threading.Thread(target=left.send, args=[large])
    thread.start()
    assert right.receive(5.0) == large
    thread.join()
    left.close()
    right.close()
