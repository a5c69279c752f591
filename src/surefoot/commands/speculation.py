"""From what the user says about speculation to a drafter, the models that it runs included."""

import argparse
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from surefoot import models
from surefoot.commands.model_options import load_mode
from surefoot.decoding import Drafter, InvalidParameterError
from surefoot.drafting.base import make_drafter
from surefoot.drafting.closing import close_drafter
from surefoot.drafting.options import speculation_settings
from surefoot.drafting.resources import Resources
from surefoot.drafting.settings import SpeculationSettings
from surefoot.drafting.vocabulary import Vocabulary, shared_tokens
from surefoot.runtime.base import ModelLoadError, Runtime
from surefoot.runtime.libllama import (
    HeadFile,
    LibllamaRuntime,
    LoadSettings,
    NoHeadError,
    load,
    open_head,
)

SHORTEST_DRAFT_CONTEXT = 32

_LOG = logging.getLogger(__name__)


def settings_of(options: argparse.Namespace) -> SpeculationSettings:
    """What the options say about speculation, once `--spec-type auto` is settled.

    That is the default: a model given with -md drafts, else the target's own head if it has one,
    else n-grams do.

    Raises:
        InvalidParameterError: a drafter is unknown, or a number is outside its range.
    """
    if options.spec_type in (None, ["auto"]):
        options = argparse.Namespace(**vars(options) | {"spec_type": _automatic(options)})
    return speculation_settings(options)


def _automatic(options: argparse.Namespace) -> list[str] | None:
    path = options.spec_draft_model or options.model
    if path.is_file() and HeadFile.of(path).problem is None:
        return ["draft-mtp"]
    # A draft model then drafts, and speculation_settings says so; without one n-grams do.
    return None


@dataclass(frozen=True, slots=True)
class Drafting:
    """How a target drafts, and the models loaded for it.

    Attributes:
        drafter: the target's drafter, ready to draft; None for no speculation.
        settings: what is asked for, without what can't be had.
        resources: the models.
    """

    drafter: Drafter | None
    settings: SpeculationSettings
    resources: Resources

    @contextmanager
    def beside(self, runtime: LibllamaRuntime) -> Iterator[Drafter | None]:
        """A drafter of the same kind for another context of the target, closed in the end.

        It has memories of its own. A lookup file that requests add to is left to the first one.

        Raises:
            ModelLoadError: there is no room for its memories.
        """
        settings, resources = replace(self.settings, lookup_cache_dynamic=None), self.resources
        with ExitStack() as stack:
            if isinstance(resources.draft_model, LibllamaRuntime):
                sibling = stack.enter_context(resources.draft_model.sibling(None))
                resources = replace(resources, draft_model=sibling)
            if resources.head is not None:
                head = open_head(runtime, _head_file(settings))
                stack.callback(head.close)
                resources = replace(resources, head=head)
            drafter = make_drafter(settings, resources)
            stack.callback(close_drafter, drafter)
            yield drafter


@contextmanager
def drafting_for(
    runtime: Runtime, speculation: SpeculationSettings, options: argparse.Namespace
) -> Iterator[Drafting]:
    """The drafter that the settings ask for, with its models.

    A head that is asked for and can't be used is done without, with a warning that says why.
    At the end of the context the drafter and the models that were loaded for it are closed.

    Args:
        runtime: the target.
        speculation: what is asked for.
        options: with those of `add_model_arguments`.

    Raises:
        InvalidParameterError: an option is unusable.
        ModelLoadError: a model can't be loaded.
        VocabularyMismatchError: a draft model's tokens are not the target's.
    """
    with ExitStack() as stack:
        resources = Resources(runtime.vocabulary_size)
        if "draft-simple" in speculation.chosen:
            resources = _with_draft_model(resources, runtime, speculation, options, stack)
        if "draft-mtp" in speculation.chosen:
            try:
                resources = _with_head(resources, runtime, speculation, stack)
            except NoHeadError as error:
                _LOG.warning("draft-mtp is off: %s", error)
                others = tuple(kind for kind in speculation.chosen if kind != "draft-mtp")
                speculation = replace(speculation, types=others)
        drafter = make_drafter(speculation, resources)
        stack.callback(close_drafter, drafter)
        yield Drafting(drafter, speculation, resources)


def uses_own_head(speculation: SpeculationSettings) -> bool:
    """Whether the target has to be loaded with its own multi-token-prediction head."""
    return "draft-mtp" in speculation.chosen and _head_file(speculation) is None


def _head_file(speculation: SpeculationSettings) -> Path | None:
    """The file of a head that is kept apart; None if -md names a draft model, or nothing."""
    return None if "draft-simple" in speculation.chosen else speculation.draft_model


def _with_head(
    resources: Resources, runtime: Runtime, speculation: SpeculationSettings, stack: ExitStack
) -> Resources:
    """Open the head, which the stack closes.

    Raises:
        NoHeadError: there is none that could be used.
        ModelLoadError: its file can't be loaded.
        VocabularyMismatchError: its tokens are not the target's.
    """
    if not isinstance(runtime, LibllamaRuntime):
        raise NoHeadError("this model is not run by libllama")
    path = _head_file(speculation)
    try:
        head = open_head(runtime, path)
    except ModelLoadError as error:
        raise ModelLoadError(f"the head (-md): {error}" if path else str(error)) from error
    stack.callback(head.close)
    shared = None
    if path is not None:
        tokens = Vocabulary.of(path.name, head.vocabulary_size, head.tokenizer)
        shared = shared_tokens(_vocabulary(runtime), tokens)
    return replace(resources, head=head, head_tokens=shared)


def _with_draft_model(
    resources: Resources,
    runtime: Runtime,
    speculation: SpeculationSettings,
    options: argparse.Namespace,
    stack: ExitStack,
) -> Resources:
    """Load the draft model, if there is one; the stack closes it."""
    path = speculation.draft_model
    if path is None and options.model == models.TARGET:
        path = models.DRAFT
    if path is None:
        return resources
    model = stack.enter_context(_draft_model(path, runtime, speculation, options))
    shared = shared_tokens(_vocabulary(runtime), _vocabulary(model))
    return replace(resources, draft_model=model, shared_tokens=shared)


def _draft_model(
    path: Path, runtime: Runtime, speculation: SpeculationSettings, options: argparse.Namespace
) -> LibllamaRuntime:
    """Load the draft model, with a context for as many sequences as the target has.

    Raises:
        InvalidParameterError: an option is outside its range.
        ModelLoadError: it can't be loaded.
    """
    length = speculation.ctx_size_draft
    if length is not None and length != 0 and length < SHORTEST_DRAFT_CONTEXT:
        raise InvalidParameterError(
            "--ctx-size-draft",
            f"must be 0 (as the model was trained) or at least {SHORTEST_DRAFT_CONTEXT} tokens, "
            f"and is {length}",
        )
    threads = speculation.draft_threads
    if threads is not None and threads < 1:
        raise InvalidParameterError("--spec-draft-threads", f"must be 1 or more, and is {threads}")
    settings = LoadSettings(
        path=path,
        slots=runtime.slots,
        context_length=runtime.context_length if length is None else length,
        threads=threads or options.threads,
        threads_batch=None if threads else options.threads_batch,
        flash_attention=options.flash_attn,
        load_mode=load_mode(options),
        gpu_layers=speculation.draft_ngl,
        batch_size=options.batch_size,
        micro_batch_size=min(options.ubatch_size, options.batch_size),
        longest_draft=speculation.draft_n_max,
    )
    try:
        return load(settings)
    except ModelLoadError as error:
        raise ModelLoadError(f"the draft model (-md): {error}") from error


def _vocabulary(runtime: Runtime) -> Vocabulary:
    return Vocabulary.of(runtime.info.name, runtime.vocabulary_size, runtime.tokenizer)
