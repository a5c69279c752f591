"""The engine at work for a server: in a worker process, or in this one."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from surefoot.commands.plan import EnginePlan
from surefoot.commands.slot_options import resumed
from surefoot.engine import EngineHandle, EngineThread, QueueSettings
from surefoot.runtime.libllama import load_vocabulary

SECONDS_TO_SAVE = 120.0
"""How long a worker may take to end if it saves its slots."""


def queue_settings(options: argparse.Namespace) -> QueueSettings:
    """What the options say of the queue.

    Raises:
        InvalidParameterError: one is outside its range.
    """
    return QueueSettings(options.queue, options.queue_timeout)


@contextmanager
def engine_at_work(
    options: argparse.Namespace, plan: EnginePlan, queue: QueueSettings
) -> Iterator[EngineHandle]:
    """The engine, stopped at the end of the context.

    Args:
        options: serve's.
        plan: what they make of an engine.
        queue: limits of its queue.

    Raises:
        SurefootError: it can't be had; the text says why.
    """
    with ExitStack() as stack:
        if options.in_process:
            engine = stack.enter_context(plan.open(queue))
            if options.exact == "strict":
                engine.check_strict()
            stack.enter_context(resumed(engine, options))
            thread = EngineThread(engine)
            thread.start()
            stack.callback(thread.stop)
            yield thread
            return
        from surefoot.worker import Supervisor, WorkerProcess
        from surefoot.worker.process import python
        from surefoot.worker.supervisor import SECONDS_TO_STOP

        def command(descriptor: int) -> list[str]:
            return [*python("surefoot.commands.worker"), f"{descriptor}", *options.arguments]

        supervisor = Supervisor(
            lambda: WorkerProcess(command),
            lambda: load_vocabulary(plan.settings.file),
            options.worker_timeout,
            queue,
            options.stall_seconds,
            SECONDS_TO_SAVE if options.resume else SECONDS_TO_STOP,
        )
        stack.callback(supervisor.stop)
        supervisor.start()
        yield supervisor
