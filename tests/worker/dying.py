"""A worker on a simulated runtime that dies of some texts: `python -m tests.worker.dying FD`."""

import os
import sys
import time
from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

from surefoot.commands.worker import channel_of
from surefoot.decoding import Feed
from surefoot.engine import Engine
from surefoot.runtime.simulated import SimulatedRuntime
from surefoot.worker import work

ABORTS, EXITS, HANGS = 491, 492, 493


class Dying(SimulatedRuntime):
    """The model of `tests.worker.test_process`; three tokens do harm where a text begins."""

    def __init__(self) -> None:
        super().__init__(
            vocabulary_size=512,
            slots=3,
            context_length=4096,
            end_rate=1e-6,
            decode_seconds=0.002,
        )

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        begun = {feed.tokens[0] for feed in feeds if feed.start == 0}
        if ABORTS in begun:
            os.abort()
        if EXITS in begun:
            os._exit(7)
        if HANGS in begun:
            time.sleep(1000)
        return super().decode(feeds)


if __name__ == "__main__":
    channel = channel_of(int(sys.argv[1]))
    work(Engine(Dying()), channel)
