"""A server of a simulated hybrid, shared by the tests that leave no trace in it."""

from collections.abc import Iterator

import pytest

from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.running import Running

CONTEXT = 256


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """Two slots, a drafter, a context of 256 tokens, texts that rarely end by themselves."""
    runtime = SimulatedRuntime(
        vocabulary_size=512, slots=2, context_length=CONTEXT, end_rate=1 / 250
    )
    with Running(runtime, NgramSimple(size_n=2)) as running:
        yield running
