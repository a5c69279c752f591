"""Whether a context fits into the computer's memory, found out before it is asked for.

Linux grants allocations that it can't keep and kills the process when they are used. So the
context is first made in a dry run that allocates nothing; its log tells the sizes.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from surefoot.runtime.base import ModelLoadError
from surefoot.runtime.libllama import binding, log
from surefoot.runtime.libllama.context import ContextPlan, context_parameters, open_context
from surefoot.runtime.libllama.head_file import HeadFile
from surefoot.runtime.libllama.model import Model, model_parameters
from surefoot.runtime.libllama.settings import LoadSettings

_SYSTEM = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")
# "llama_kv_cache: size = 12.00 MiB (...", "...: CPU compute buffer size = 3.00 MiB", and so on.
_SIZES = re.compile(r"(?:: +size|(?:compute|output) buffer size) = +([0-9.]+) MiB")
_DRY_CELLS = 32768
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that a context takes: a part that is always there, and one for each cell."""

    fixed: float
    per_cell: float

    def of(self, cells: int) -> int:
        """Bytes for so many cells."""
        return int(self.fixed + self.per_cell * cells)


def available_memory() -> int | None:
    """Bytes that this process can still take without being killed; None if nobody tells."""
    limits = []
    try:
        found = re.search(r"MemAvailable: +(\d+) kB", _SYSTEM.read_text())
        if found:
            limits.append(int(found[1]) * 1024)
    except OSError:
        pass
    try:
        most = int((_CONTAINER / "memory.max").read_text())
        used = int((_CONTAINER / "memory.current").read_text())
        cached = re.search(r"^inactive_file (\d+)", (_CONTAINER / "memory.stat").read_text(), re.M)
        limits.append(most - used + (int(cached[1]) if cached else 0))
    except (OSError, ValueError):
        pass  # no container, or one without a limit
    return min(limits, default=None)


def check_memory(settings: LoadSettings, plan: ContextPlan, model: Model, file: HeadFile) -> None:
    """Make sure that a context fits, if it will lie in the computer's own memory.

    Weights are not counted: they are mapped from the file, so they slow down what doesn't fit
    instead of killing it.

    Raises:
        ModelLoadError: it doesn't fit; the text says what it would need and what would fit.
    """
    available = available_memory()
    if available is None or settings.on_gpu or _surely_fits(settings, plan, model, available):
        return
    need = _measured_need(settings, plan, file)
    if need.of(plan.cells) <= available:
        return
    advice = "Even the smallest context doesn't fit: free memory, or use a smaller model."
    if need.per_cell > 0:
        cells = int((available - need.fixed) / need.per_cell)
        length = cells // settings.slots - (plan.room - plan.context_length)
        if length >= 256:
            most = length // 256 * 256
            advice = f"Ask for at most {most} tokens a slot (-c), or for fewer slots (-np)."
    raise ModelLoadError(
        f"a context of {plan.context_length} tokens for each of {settings.slots} slots would take "
        f"{need.of(plan.cells):,} bytes, but only {available:,} bytes of memory are available. "
        f"{advice}"
    )


def _surely_fits(settings: LoadSettings, plan: ContextPlan, model: Model, available: int) -> bool:
    """A bound that spares most loads the dry run, which reads the vocabulary a second time.

    Keys and values rarely have more than twice the embedding's width in a layer, at four bytes a
    number if they are f32, else at two at most; masks have six bytes for each token of a graph run;
    and half of the memory stays free.
    """
    layers = binding.llama_model_n_layer(model.handle)
    size = 4 if "f32" in settings.cache_types else 2
    keys_and_values = layers * binding.llama_model_n_embd(model.handle) * 2 * 2 * size
    masks = settings.micro_batch_size * 6
    logits = (plan.outputs + settings.micro_batch_size) * model.vocabulary_size * 4
    return plan.cells * (keys_and_values + masks) + logits < available / 2


def _measured_need(settings: LoadSettings, plan: ContextPlan, file: HeadFile) -> MemoryNeed:
    """Sizes by two dry runs, long enough that windowed caches have reached their full size."""
    # Mapping the file is not possible in a dry run.
    parameters = model_parameters(file, load_mode="none")
    parameters.no_alloc = True
    model = Model(settings.file, parameters)
    try:
        short, long = (
            _dry_run(settings, replace(plan, cells=cells), model)
            for cells in (_DRY_CELLS, 2 * _DRY_CELLS)
        )
    finally:
        model.close()
    per_cell = (long - short) / _DRY_CELLS
    return MemoryNeed(fixed=max(0.0, short - per_cell * _DRY_CELLS), per_cell=per_cell)


def _dry_run(settings: LoadSettings, plan: ContextPlan, model: Model) -> float:
    with log.captured() as lines:
        binding.llama_free(open_context(model, context_parameters(settings, plan, model)))
    sizes = (found[1] for line in lines if (found := _SIZES.search(line.text)))
    return sum(map(float, sizes)) * _MEBIBYTE
