"""Workers die, and requests go on: on simulated runtimes, in threads."""

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from surefoot.constraints import ControlSpec, Grammar, GrammarError
from surefoot.decoding import GREEDY, InvalidParameterError, Sampling, ScoreWish
from surefoot.engine import (
    SHUTTING_DOWN,
    Engine,
    EngineStoppedError,
    GenerationState,
    PromptTooLongError,
    QueueFullError,
    QueueSettings,
    Request,
    SlotError,
    SlotOrder,
)
from surefoot.runtime.base import ModelLoadError
from surefoot.runtime.simulated import SimulatedRuntime
from surefoot.worker import Channel, WorkerStartError
from tests.server.gate import Gate
from tests.worker.simulated import Heard, Poisoned, Supervised

SEED = 20261202
SETTINGS: dict[str, Any] = {
    "vocabulary_size": 512,
    "slots": 3,
    "context_length": 256,
    "end_rate": 1 / 1000,
}
POISON = 499


def supervised(decode_seconds: Any = 0.0, **options: Any) -> Supervised:
    def make(_channel: Channel) -> Engine:
        return Engine(SimulatedRuntime(decode_seconds=decode_seconds, **SETTINGS))

    return Supervised(make, SimulatedRuntime(**SETTINGS), **options)


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def undisturbed(requests: list[Request]) -> list[Heard]:
    engine = Engine(SimulatedRuntime(**SETTINGS))
    clients = [Heard() for _ in requests]
    for request, client in zip(requests, clients, strict=True):
        engine.run(request, client)
    return clients


def some_requests(dice: random.Random, count: int) -> list[Request]:
    return [
        Request(
            tuple(dice.randrange(300, 490) for _ in range(dice.randrange(2, 30))),
            Sampling(seed=dice.randrange(1000), temperature=0.8, repeat_penalty=1.2),
            max_tokens=dice.randrange(20, 50),
            control=dice.choice([None, ControlSpec(Grammar("regex", "[a-z ]{30,60}"))]),
            wish=dice.choice([None, ScoreWish(1)]),
        )
        for _ in range(count)
    ]


def test_all_goes_on_when_workers_are_killed_again_and_again() -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    requests = some_requests(dice, 8)
    expected = undisturbed(requests)
    before = open_descriptors()
    with supervised(decode_seconds=0.002) as running:
        clients = [Heard() for _ in requests]
        journals = [
            running.supervisor.submit_group([request], [client])[0]
            for request, client in zip(requests, clients, strict=True)
        ]
        for lives in range(1, 21):
            running.wait_for_life(lives)
            told = sum(len(client.deltas) for client in clients)
            time.sleep(dice.random() * 0.03)
            # Three deaths in a row with nothing said between would be taken for somebody's fault.
            while running.supervisor.open and told == sum(len(c.deltas) for c in clients):
                time.sleep(0.001)
            running.workers[-1].kill()
        for client in clients:
            assert client.wait() is GenerationState.FINISHED
        restarts = running.supervisor.status().restarts
        totals = running.supervisor.status().totals
    assert restarts >= 5
    for client, other, journal in zip(clients, expected, journals, strict=True):
        assert client.tokens == journal.tokens == other.tokens
        assert client.text == journal.text == other.text
        assert [e for d in client.deltas for e in d.entries] == [
            e for d in other.deltas for e in d.entries
        ]
        assert journal.summary.generated_tokens == len(other.tokens)
    assert totals.ended == {"finished": 8}
    assert totals.generated_tokens == sum(len(other.tokens) for other in expected)
    assert open_descriptors() == before


def test_a_group_goes_on_each_from_its_own_tokens() -> None:
    prompt = tuple(range(310, 330))
    group = [
        Request(prompt, Sampling(seed=seed, temperature=1.0), max_tokens=30) for seed in range(3)
    ]
    expected = undisturbed(group)
    with supervised(decode_seconds=0.002) as running:
        clients = [Heard() for _ in group]
        journals = running.supervisor.submit_group(group, clients)
        clients[0].wait(deltas=5)
        running.workers[-1].kill()
        for client in clients:
            assert client.wait() is GenerationState.FINISHED
    assert [client.tokens for client in clients] == [other.tokens for other in expected]
    assert all(journal.group == journals for journal in journals)
    assert all(journal.summary.recoveries == 1 for journal in journals)


def poisoned(company: int) -> tuple[Supervised, list[Request], list[Request]]:
    """Workers that die of a token, and requests with and without it."""
    running: list[Supervised] = []

    def make(_channel: Channel) -> Engine:
        worker = running[0].workers

        def die() -> None:
            worker[-1].kill()
            time.sleep(0.05)

        return Engine(Poisoned(POISON, die, decode_seconds=0.001, **SETTINGS))

    running.append(Supervised(make, SimulatedRuntime(**SETTINGS)))
    innocent = some_requests(random.Random(SEED), company)
    return running[0], [Request((301, POISON, 302), GREEDY, max_tokens=9)], innocent


@pytest.mark.parametrize("company", [0, 1, 5])
def test_who_kills_the_worker_is_found_and_named_and_nobody_else_is_given_up(company: int) -> None:
    running, guilty, innocent = poisoned(company)
    expected = undisturbed(innocent)
    with running:
        submit = running.supervisor.submit_group
        clients = [Heard() for _ in innocent]
        for request, client in zip(innocent, clients, strict=True):
            submit([request], [client])
        killer = Heard()
        [journal] = submit(guilty, [killer])
        assert killer.wait() is GenerationState.FAILED
        after = Heard()
        submit([innocent[0] if innocent else Request((303,), GREEDY, max_tokens=4)], [after])
        for client in [*clients, after]:
            assert client.wait() is GenerationState.FINISHED
        restarts = running.supervisor.status().restarts
    assert journal.error is not None
    assert f"request {journal.id} is given up: the worker died" in journal.error
    assert [client.tokens for client in clients] == [other.tokens for other in expected]
    assert restarts == 2 if company == 0 else restarts <= 5


def test_a_worker_that_gets_nowhere_is_started_again() -> None:
    stuck = threading.Event()
    first = threading.Event()

    def seconds(_tokens: int) -> float:
        if not first.is_set():
            first.set()
            stuck.wait(20)
        return 0.0

    with supervised(decode_seconds=seconds, timeout=0.4) as running:
        client = Heard()
        [journal] = running.supervisor.submit_group([Request((310, 311), max_tokens=5)], [client])
        assert first.wait(10)
        while not running.workers[0].killed:
            time.sleep(0.01)
        stuck.set()
        assert client.wait() is GenerationState.FINISHED
        assert len(journal.tokens) == 5
        assert running.supervisor.status().restarts == 1


def test_a_worker_with_nothing_to_do_may_be_silent() -> None:
    with supervised(timeout=0.2) as running:
        time.sleep(0.6)
        assert running.supervisor.status().restarts == 0


def test_requests_that_come_while_it_restarts_are_queued_and_can_be_cancelled() -> None:
    with supervised(delays=[0.6]) as running:
        running.workers[-1].kill()
        while running.supervisor.status().health.status != "restarting":
            time.sleep(0.005)
        stays, goes = Heard(), Heard()
        running.supervisor.submit_group([Request((310,), max_tokens=3)], [stays])
        [doomed] = running.supervisor.submit_group([Request((311,), max_tokens=3)], [goes])
        assert running.supervisor.status().health.waiting == 2
        running.supervisor.cancel(doomed)
        assert goes.wait() is GenerationState.CANCELLED
        assert stays.wait() is GenerationState.FINISHED
        assert running.supervisor.status().health.status != "restarting"


def test_a_cancelled_request_ends_within_a_round() -> None:
    with supervised(decode_seconds=0.002) as running:
        client = Heard()
        [journal] = running.supervisor.submit_group([Request((310,), max_tokens=200)], [client])
        client.wait(deltas=3)
        running.supervisor.cancel(journal)
        assert client.wait() is GenerationState.CANCELLED
        assert len(journal.tokens) < 200
        assert running.supervisor.open == 0


def test_what_cannot_be_served_is_refused_where_it_is_submitted() -> None:
    with supervised() as running:
        submit = running.supervisor.submit_group
        with pytest.raises(PromptTooLongError):
            submit([Request((310,) * 256)], [Heard()])
        with pytest.raises(InvalidParameterError, match="number of slots"):
            submit([Request((310,))] * 4, [Heard()] * 4)
        with pytest.raises(InvalidParameterError, match="strict is not available"):
            submit([Request((310,), exact="strict")], [Heard()])
        with pytest.raises(GrammarError):
            submit([Request((310,), control=ControlSpec(Grammar("regex", "(")))], [Heard()])
        assert running.supervisor.open == 0


def test_stop_tells_all_and_takes_no_more() -> None:
    with supervised(decode_seconds=0.002) as running:
        clients = [Heard() for _ in range(5)]
        journals = [
            running.supervisor.submit_group([Request((310 + n,), max_tokens=200)], [client])[0]
            for n, client in enumerate(clients)
        ]
        clients[0].wait(deltas=2)
        running.supervisor.stop()
        for client, journal in zip(clients, journals, strict=True):
            assert client.wait() is GenerationState.FAILED
            assert journal.error == SHUTTING_DOWN
        with pytest.raises(EngineStoppedError):
            running.supervisor.submit_group([Request((310,))], [Heard()])
        running.supervisor.stop()  # once more does nothing


def test_a_listener_that_raises_harms_only_itself() -> None:
    def bad(_: object) -> None:
        raise ValueError("nobody is listening")

    with supervised() as running:
        good = Heard()
        running.supervisor.submit_group([Request((310,), max_tokens=100)], [bad])
        running.supervisor.submit_group([Request((311,), max_tokens=20)], [good])
        assert good.wait() is GenerationState.FINISHED
        while running.supervisor.open:
            time.sleep(0.002)
        assert running.supervisor.status().restarts == 0


def test_why_the_first_start_failed_is_told_to_who_starts() -> None:
    def make(_channel: Channel) -> Engine:
        raise ModelLoadError("can't load it: the moon is full")

    running = Supervised(make, SimulatedRuntime(**SETTINGS))
    with pytest.raises(WorkerStartError, match="the moon is full"), running:
        pass
    assert len(running.workers) == 1


def test_open_requests_fail_when_the_worker_cannot_be_started_any_more() -> None:
    broken = threading.Event()

    def make(_channel: Channel) -> Engine:
        if broken.is_set():
            raise ModelLoadError("out of memory")
        return Engine(SimulatedRuntime(decode_seconds=0.005, **SETTINGS))

    with Supervised(make, SimulatedRuntime(**SETTINGS)) as running:
        client = Heard()
        [journal] = running.supervisor.submit_group([Request((310,), max_tokens=200)], [client])
        client.wait(deltas=2)
        broken.set()
        running.workers[-1].kill()
        assert client.wait() is GenerationState.FAILED
        assert journal.error == "the worker can't be started: out of memory"
        broken.clear()
        after = Heard()
        running.supervisor.submit_group([Request((310,), max_tokens=3)], [after])
        assert after.wait() is GenerationState.FINISHED


def test_counters_go_on_over_restarts() -> None:
    with supervised() as running:
        rounds = []
        for _ in range(3):
            client = Heard()
            running.supervisor.submit_group([Request((310,), max_tokens=10)], [client])
            assert client.wait() is GenerationState.FINISHED
            rounds.append(running.supervisor.status().figures.rounds)
            running.workers[-1].kill()
            while running.supervisor.status().restarts < len(rounds):
                time.sleep(0.002)
        assert rounds == [10, 20, 30]
        assert running.supervisor.status().figures.passes >= 30


def test_slots_are_told_and_an_order_fails_in_words_when_the_worker_dies(tmp_path: Path) -> None:
    with supervised() as running:
        client = Heard()
        request = Request((310, 311), max_tokens=10)
        [journal] = running.supervisor.submit_group([request], [client])
        assert client.wait() is GenerationState.FINISHED
        slot = journal.summary.slot
        path = str(tmp_path / "chat")
        done = running.supervisor.slot(SlotOrder("save", slot, path))
        assert done.tokens == running.supervisor.status().figures.slots[slot].tokens == 11
        with pytest.raises(SlotError, match="no file") as caught:
            running.supervisor.slot(SlotOrder("restore", slot, str(tmp_path / "none")))
        assert caught.value.problem == "missing"
        running.workers[-1].kill()
        running.wait_for_life(2)
        assert running.supervisor.slot(SlotOrder("restore", slot, path)).tokens == 11


def test_an_order_for_a_slot_does_not_wait_for_a_worker_that_is_gone() -> None:
    with supervised(delays=[0.6]) as running:
        running.workers[-1].kill()
        while running.supervisor.status().health.status != "restarting":
            time.sleep(0.005)
        with pytest.raises(SlotError, match="try again") as caught:
            running.supervisor.slot(SlotOrder("erase", 0))
        assert caught.value.problem == "busy"


def test_health_is_degraded_while_a_worker_has_work_and_says_nothing() -> None:
    gate = Gate()
    with supervised(decode_seconds=gate, stall_seconds=0.1) as running:
        client = Heard()
        assert running.supervisor.status().health.status == "ok"
        running.supervisor.submit_group([Request((310, 311), max_tokens=4)], [client])
        while (health := running.supervisor.status().health).status == "ok":
            time.sleep(0.005)
        assert (health.status, health.live) == ("degraded", False)
        assert health.reason is not None
        assert "told nothing" in health.reason
        gate.open()
        assert client.wait() is GenerationState.FINISHED
        assert running.supervisor.status().health.status == "ok"


def test_the_queues_limit_holds_in_front_of_a_worker() -> None:
    gate = Gate()
    with supervised(decode_seconds=gate, queue=QueueSettings(limit=2)) as running:
        clients = [Heard() for _ in range(5)]
        for client in clients:  # three for the slots, two wait
            running.supervisor.submit_group([Request((310, 311), max_tokens=4)], [client])
        with pytest.raises(QueueFullError, match=r"and 2 may \(--queue\)"):
            running.supervisor.submit_group([Request((310,), max_tokens=4)], [Heard()])
        assert running.supervisor.status().refused == 1
        gate.open()
        assert all(client.wait() is GenerationState.FINISHED for client in clients)
        last = Heard()
        running.supervisor.submit_group([Request((310,), max_tokens=4)], [last])
        assert last.wait() is GenerationState.FINISHED


def test_a_deadline_counts_from_when_the_request_came_whatever_worker_it_is_in() -> None:
    with supervised(decode_seconds=0.005, delays=[0.6]) as running:
        client = Heard()
        request = Request((310, 311), max_tokens=250, deadline_seconds=0.5)
        [journal] = running.supervisor.submit_group([request], [client])
        client.wait(deltas=10)
        running.workers[-1].kill()
        while running.supervisor.status().health.status != "restarting":
            time.sleep(0.005)
        told = len(journal.tokens)  # by the next worker's start the time is up
        assert client.wait() is GenerationState.FINISHED
        assert journal.finish is not None
        assert journal.finish.cause == "deadline"
        assert len(journal.tokens) <= told + 1  # within a round
