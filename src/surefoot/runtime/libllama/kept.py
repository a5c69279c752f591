"""Room for forks that are kept: how many ids, and how many cells beside those of the slots.

With recurrent memory libllama allocates a state for each id, so the number follows from the bytes
that are allowed. What a state and a cell take is found out in a context of a few cells.
"""

from dataclasses import dataclass, replace

from surefoot.decoding import Feed, Rollback
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.context import ContextPlan, context_parameters, open_context
from surefoot.runtime.libllama.memory import SequenceMemory
from surefoot.runtime.libllama.model import Model
from surefoot.runtime.libllama.passes import Limits, Passes
from surefoot.runtime.libllama.settings import SHORTEST_CONTEXT, LoadSettings
from surefoot.runtime.libllama.states import States
from surefoot.runtime.pieces import Cutting

MOST_CHECKPOINTS = 32
"""So many forks are kept at most: with more, the search for the best one begins to take time, and
libllama has 256 ids for everything."""

_MOST_EXTRA = 3
"""So many times the slots' own cells are added at most, lest a large budget be allocated for
nothing beside a small model."""

_SHARE_OF_STATES = 0.75
"""Of a hybrid's budget; the rest is for attention cells, which forks of one text share."""


@dataclass(frozen=True, slots=True)
class StateCosts:
    """Bytes that a fork takes by itself, and for each token that it does not share."""

    fork: int
    cell: int


def with_checkpoints(plan: ContextPlan, settings: LoadSettings, model: Model) -> ContextPlan:
    """A plan with room for kept forks, as many as the settings' bytes are enough for.

    A sliding window's cells can't be shared with forks that stay behind: the window's cache is no
    larger than the windows. So there are no forks then, and states are saved instead.

    Raises:
        ModelLoadError: the model can't be run in a context of a few cells.
    """
    if not settings.checkpoint_bytes or (model.window and not model.is_hybrid):
        return plan
    costs = _measured(settings, model)
    budget = settings.checkpoint_bytes
    most = min(MOST_CHECKPOINTS, binding.llama_max_parallel_sequences() - plan.sequences)
    states = (1 + settings.snapshots) * costs.fork
    if states:
        share = _SHARE_OF_STATES if costs.cell else 1.0
        most = min(most, int(budget * share) // states)
    if most < 1:
        return plan
    cells = 0
    if costs.cell:
        cells = min((budget - most * states) // costs.cell, _MOST_EXTRA * plan.cells)
    return replace(
        plan,
        cells=plan.cells + max(0, cells),
        outputs=max(plan.outputs, plan.sequences + most),
        sequences=plan.sequences + most,
        checkpoints=most,
        fork_bytes=states,
        cell_bytes=costs.cell,
    )


def _measured(settings: LoadSettings, model: Model) -> StateCosts:
    """What one token's state has that can't be cut, and how much each further token adds."""
    batch = 2 * SHORTEST_CONTEXT
    small = replace(
        settings,
        slots=1,
        context_length=SHORTEST_CONTEXT,
        longest_draft=0,
        batch_size=batch,
        micro_batch_size=batch,
        snapshots=0,
    )
    plan = ContextPlan.of(small, model.training_context)
    context = open_context(model, context_parameters(small, plan, model))
    try:
        memory = SequenceMemory(
            binding.llama_get_memory(context) or 0, sequences=2, snapshots=0, window=0
        )
        memory.rollback = Rollback(cut=0, fork=False)
        cutting = Cutting(most=batch, recurrent=True, consecutive=False, snapshots=0)
        limits = Limits(
            tokens=batch, outputs=1, sequences=2, length=batch, vocabulary=model.vocabulary_size
        )
        passes, states = Passes(context, memory, cutting, limits), States(context, memory)
        recurs = model.is_recurrent or model.is_hybrid
        sizes = []
        for position in range(2):
            passes.run([Feed(0, [0], position, outputs=0)])
            sizes.append(states.size(0))
        return StateCosts(states.fixed_size(0) if recurs else 0, sizes[1] - sizes[0])
    finally:
        binding.llama_free(context)
