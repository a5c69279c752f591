"""Worker processes: how they die, and that they leave nothing behind."""

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from surefoot.decoding import GREEDY, Sampling
from surefoot.engine import Engine, GenerationState, Request
from surefoot.worker import Supervisor, WorkerProcess, WorkerStartError
from surefoot.worker.process import python
from tests.server.process import ServerProcess, children, run_server
from tests.server.running import events, until
from tests.worker.dying import ABORTS, EXITS, HANGS, Dying
from tests.worker.simulated import Heard

SEED = 20261203


@contextmanager
def supervised(timeout: float = 60.0) -> Iterator[tuple[Supervisor, list[WorkerProcess]]]:
    workers: list[WorkerProcess] = []

    def launch() -> WorkerProcess:
        workers.append(WorkerProcess(lambda fd: [*python("tests.worker.dying"), f"{fd}"]))
        return workers[-1]

    supervisor = Supervisor(launch, Dying, timeout, delays=[0.0])
    supervisor.start()
    try:
        yield supervisor, workers
    finally:
        supervisor.stop()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_streams_survive_kill_9_and_nothing_is_left_behind() -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    requests = [
        Request(tuple(dice.randrange(300, 490) for _ in range(9)), Sampling(seed=n), max_tokens=80)
        for n in range(6)
    ]
    engine, expected = Engine(Dying()), [Heard() for _ in requests]
    for request, client in zip(requests, expected, strict=True):
        engine.run(request, client)
    open_before, children_before = descriptors(), children(os.getpid())
    with supervised() as (supervisor, workers):
        clients = [Heard() for _ in requests]
        for request, client in zip(requests, clients, strict=True):
            supervisor.submit_group([request], [client])
        for number in range(1, 6):

            def reborn(number: int = number) -> bool:
                health = supervisor.status().health
                return len(workers) >= number and health.status != "restarting"

            until(reborn)
            told = sum(len(client.deltas) for client in clients)
            until(lambda t=told: not supervisor.open or t < sum(len(c.deltas) for c in clients))  # type: ignore[misc]
            time.sleep(dice.random() * 0.05)
            os.kill(workers[-1].pid, signal.SIGKILL)
        for client in clients:
            assert client.wait() is GenerationState.FINISHED
    assert [client.tokens for client in clients] == [other.tokens for other in expected]
    assert [client.text for client in clients] == [other.text for other in expected]
    assert descriptors() == open_before
    assert children(os.getpid()) == children_before


@pytest.mark.parametrize(
    ("poison", "end"),
    [
        (ABORTS, "it was killed by SIGABRT"),
        (EXITS, "it ended with exit code 7"),
        (HANGS, "it had work and told nothing for 1.5 s"),
    ],
)
def test_a_request_that_kills_the_worker_twice_is_named_with_the_end(poison: int, end: str) -> None:
    with supervised(timeout=1.5 if poison == HANGS else 60) as (supervisor, workers):
        killer, after = Heard(), Heard()
        [journal] = supervisor.submit_group([Request((poison, 301, 302), GREEDY)], [killer])
        assert killer.wait() is GenerationState.FAILED
        assert len(workers) == 2
        assert journal.error is not None
        assert f"request {journal.id} is given up" in journal.error
        assert "died 2 times in a row while it ran" in journal.error
        assert end in journal.error
        supervisor.submit_group([Request((301,), GREEDY, max_tokens=3)], [after])
        assert after.wait() is GenerationState.FINISHED


def test_a_worker_that_cannot_even_begin_is_an_error_in_words() -> None:
    supervisor = Supervisor(
        lambda: WorkerProcess(lambda _: [sys.executable, "-c", "raise SystemExit(3)"]), Dying
    )
    with pytest.raises(WorkerStartError, match="exit code 3 while it loaded the model"):
        supervisor.start()
    supervisor = Supervisor(lambda: WorkerProcess(lambda _: ["/no/such/program"]), Dying)
    with pytest.raises(WorkerStartError, match="can't be started"):
        supervisor.start()


PARENT = """
    import sys, time
    from surefoot.engine import Request
    from surefoot.worker import Supervisor, WorkerProcess
    from surefoot.worker.process import python
    from tests.worker.dying import Dying

    workers = []
    def launch():
        workers.append(WorkerProcess(lambda fd: [*python("tests.worker.dying"), str(fd)]))
        return workers[-1]
    supervisor = Supervisor(launch, Dying)
    supervisor.start()
    supervisor.submit_group([Request((301,))], [lambda delta: None])
    print(workers[0].pid, flush=True)
    time.sleep(60)
"""


def test_a_worker_does_not_outlive_its_parent() -> None:
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        parent.kill()
    until(lambda: gone(worker))


def gone(process: int) -> bool:
    """Whether a process has ended; what its new parent has not waited for yet has, too."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# surefoot serve


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["-m", "/no/such/model.gguf"], "can't load /no/such/model.gguf: there is no such file", 1),
        (["-c", "100000000"], "Ask for at most", 1),
        (["--spec-type", "draft-simple", "-md", "/no/such/draft.gguf"], "the draft model (-md)", 1),
        (["--spec-type", "draft-simple", "-cd", "3"], "--ctx-size-draft", 2),
        (["--drain-timeout", "-1"], "--drain-timeout", 2),
        (["--worker-timeout", "0"], "--worker-timeout", 2),
    ],
    ids=lambda value: str(value)[:30],
)
def test_start_up_errors_are_the_same_one_line_with_and_without_a_worker(
    options: list[str], words: str, code: int
) -> None:
    worker, inside = (run_server("--port", "0", *options, *more) for more in ([], ["--in-process"]))
    assert worker.returncode == inside.returncode == code, worker.stderr
    assert words in worker.stderr
    assert "Traceback" not in worker.stderr
    # How much memory is free is another number each time.
    assert re.sub(r"[\d,]+", "N", worker.stderr) == re.sub(r"[\d,]+", "N", inside.stderr)


def test_a_signal_lets_open_requests_go_on_and_refuses_new_ones() -> None:
    body = {"prompt": "def ", "temperature": 0, "speculative": False, "stream": True}
    with (
        ServerProcess("-np", "1", "-c", "2048") as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", "/v1/completions", json=body) as response,
    ):
        chunks = events(response.iter_lines())
        next(chunks)
        server.send(signal.SIGTERM)
        until(lambda: httpx.get(f"{server.url}/health").status_code == 503)
        refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503
        assert "shutting down" in refused.json()["error"]["message"]
        *_, last = chunks
        assert last == "[DONE]"
        server.wait()
    assert server.log[-1] == "surefoot: stopped\n"
    assert "Traceback" not in "".join(server.log)


def test_a_second_signal_ends_the_drain() -> None:
    body = {"prompt": "def ", "temperature": 0, "speculative": False, "stream": True}
    with (
        ServerProcess("-np", "1", "-c", "2048") as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", "/v1/completions", json=body) as response,
    ):
        chunks = events(response.iter_lines())
        next(chunks)
        [worker] = server.workers
        server.send(signal.SIGINT)
        until(lambda: httpx.get(f"{server.url}/health").status_code == 503)
        assert server.end(signal.SIGTERM) == 0
        *_, last = chunks
    assert "shutting down" in last
    assert gone(worker)


def test_health_and_metrics_tell_of_a_restart_and_requests_wait_for_it() -> None:
    with (
        ServerProcess("-np", "1", "-c", "2048") as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        [worker] = server.workers
        os.kill(worker, signal.SIGKILL)
        until(lambda: client.get("/health").status_code == 503)
        health = client.get("/health")
        assert health.json()["status"] == "restarting"
        assert "SIGKILL" in health.json()["reason"]
        assert health.headers["Retry-After"] == "1"
        answer = client.post("/v1/completions", json={"prompt": "def ", "max_tokens": 4})
        assert answer.status_code == 200
        health = client.get("/health")
        assert (health.status_code, health.json()["restarts"]) == (200, 1)
        assert "surefoot_worker_restarts_total 1.0" in client.get("/metrics").text
        assert gone(worker)
        assert worker not in server.workers  # no zombie: somebody has waited for it
