#!/usr/bin/env python3
"""What the worker process costs a round, and how many tokens a second get through HTTP streams.

usage: measure_hop.py [--streams N] [--tokens N] [--pairs N]

Both use the simulated runtime, whose passes take next to no time. The hop is the difference between
a round of one request in a worker and in this process, pairwise; the throughput is that of
`surefoot serve`'s application with all streams at once, the client in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import threading
import time
from multiprocessing.connection import Connection

from surefoot.engine import Delta, Engine, EngineHandle, EngineThread, Request
from surefoot.runtime.simulated import SimulatedRuntime
from surefoot.server import bind, create_app
from surefoot.server.listening import listen, url
from surefoot.worker import Supervisor, WorkerProcess, work
from surefoot.worker.process import python

WORKER = "tools.measure_hop"


def runtime(slots: int) -> SimulatedRuntime:
    """The model, which never ends a text by itself."""
    return SimulatedRuntime(vocabulary_size=512, slots=slots, end_rate=0.0, context_length=4096)


def supervisor(slots: int) -> Supervisor:
    """The model in a worker, not started yet."""
    return Supervisor(
        lambda: WorkerProcess(lambda fd: [*python(WORKER), "--worker", f"{fd}", f"{slots}"]),
        lambda: runtime(slots),
    )


def seconds_per_round(handle: EngineHandle, rounds: int) -> float:
    """How long a round of one request takes, from one delta to the next."""
    done = threading.Event()
    times: list[float] = []

    def hear(delta: Delta) -> None:
        times.append(time.perf_counter())
        if delta.state.over:
            done.set()

    handle.submit_group([Request((300,), max_tokens=rounds)], [hear])
    done.wait()
    return (times[-1] - times[0]) / (len(times) - 1)


def measure_hop(rounds: int, pairs: int) -> None:
    """Print what a round takes either way."""
    thread = EngineThread(Engine(runtime(1)))
    thread.start()
    remote = supervisor(1)
    remote.start()
    try:
        seconds_per_round(thread, 100), seconds_per_round(remote, 100)
        here, there = [], []
        for _ in range(pairs):
            here.append(seconds_per_round(thread, rounds))
            there.append(seconds_per_round(remote, rounds))
    finally:
        remote.stop()
        thread.stop()
    hops = [b - a for a, b in zip(here, there, strict=True)]
    print(
        f"a round in this process {1e6 * statistics.median(here):.0f} us, in a worker "
        f"{1e6 * statistics.median(there):.0f} us; hop {1e6 * statistics.median(hops):.0f} us "
        f"({1e6 * min(hops):.0f} to {1e6 * max(hops):.0f}, {pairs} pairs of {rounds} rounds)"
    )


async def read_stream(port: int, tokens: int, gaps: list[float]) -> int:
    """Stream one completion over a plain socket; returns how many tokens came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"prompt": [300], "max_tokens": %d, "stream": true, "temperature": 0}' % tokens
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
        % (len(body), body)
    )
    count, last = 0, 0.0
    while True:
        data = await reader.read(1 << 16)
        now = time.perf_counter()
        got = data.count(b'"text":')
        if got and last:
            gaps.append(now - last)
        if got:
            last = now
        count += got
        if not data or b"[DONE]" in data:
            writer.close()
            return count


def client(port: int, streams: int, tokens: int, answer: Connection) -> None:
    """The client's process: all streams at once."""

    async def all_of_them() -> tuple[int, list[float], float]:
        gaps: list[float] = []
        begun = time.perf_counter()
        counts = await asyncio.gather(*(read_stream(port, tokens, gaps) for _ in range(streams)))
        return sum(counts), gaps, time.perf_counter() - begun

    answer.send(asyncio.run(all_of_them()))


def measure_streams(streams: int, tokens: int, *, worker: bool) -> None:
    """Print how many tokens a second come through."""
    import uvicorn

    handle: EngineHandle
    if worker:
        handle = remote = supervisor(streams)
        remote.start()
    else:
        handle = thread = EngineThread(Engine(runtime(streams)))
        thread.start()
    listener = bind("127.0.0.1", 0)
    listen(listener)
    app = create_app(handle, model_name="simulated")
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    loop = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    loop.start()
    port = int(url(listener).rsplit(":", 1)[1])
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=client, args=(port, streams, tokens, theirs)
    )
    process.start()
    chunks, gaps, seconds = ours.recv()
    process.join()
    server.should_exit = True
    loop.join()
    handle.stop()
    gaps.sort()
    where = "a worker" if worker else "the server's process"
    print(
        f"{streams} streams of {tokens} tokens, model in {where}: "
        f"{streams * tokens / seconds:.0f} tokens/s in {chunks} chunks; between two of a stream "
        f"median {1e3 * gaps[len(gaps) // 2]:.1f} ms, "
        f"p99 {1e3 * gaps[len(gaps) * 99 // 100]:.1f} ms"
    )


def main() -> None:
    """Read the options, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--worker", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        from surefoot.commands.worker import channel_of

        descriptor, slots = options.worker
        work(Engine(runtime(slots)), channel_of(descriptor))
        return
    measure_hop(2000, options.pairs)
    for worker in (False, True):
        measure_streams(options.streams, options.tokens, worker=worker)


if __name__ == "__main__":
    main()
