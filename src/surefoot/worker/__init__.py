"""An engine in a process of its own, and the side that keeps it alive.

`work` serves an engine over a socket, in the worker's process. `Supervisor` is the other side: an
`EngineHandle` that owns every request's journal, starts the worker again when it has died, and lets
the requests go on. How the worker comes by its model is not known here.
"""

from surefoot.worker.channel import Channel, ChannelClosedError
from surefoot.worker.process import WorkerProcess
from surefoot.worker.supervisor import Supervisor, WorkerStartError
from surefoot.worker.working import work

__all__ = [
    "Channel",
    "ChannelClosedError",
    "Supervisor",
    "WorkerProcess",
    "WorkerStartError",
    "work",
]
