"""Options of the command line for a model and its memory, with llama-server's names."""

import argparse
from pathlib import Path

from surefoot import models
from surefoot.chat.template import CHATML, ChatTemplate, ChatTemplateError
from surefoot.commands.options import as_options, read_text
from surefoot.decoding import InvalidParameterError
from surefoot.runtime.libllama import LoadSettings, binding


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model to load, and how."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "-m",
        "--model",
        type=Path,
        default=models.TARGET,
        metavar="FILE",
        help="GGUF file (default: the small hybrid model that comes with surefoot)",
    )
    group.add_argument(
        "-c",
        "--ctx-size",
        type=int,
        metavar="N",
        help="tokens of context in all, shared out evenly to the slots; 0 gives each slot the "
        "model's training context (default: that, but at most 4096 a slot)",
    )
    group.add_argument(
        "-t", "--threads", type=int, metavar="N", help="CPU threads (default: one a core)"
    )
    group.add_argument(
        "-tb",
        "--threads-batch",
        type=int,
        metavar="N",
        help="CPU threads for passes of several tokens (default: as -t)",
    )
    group.add_argument(
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        type=_gpu_layers,
        metavar="N",
        help="layers to keep on the GPU, or 'all' (default: auto, which is all if there is a GPU)",
    )
    group.add_argument(
        "-b",
        "--batch-size",
        type=int,
        default=2048,
        metavar="N",
        help="most tokens in a pass (2048)",
    )
    group.add_argument(
        "-ub",
        "--ubatch-size",
        type=int,
        default=512,
        metavar="N",
        help="tokens in a graph run (512)",
    )
    for letter, what in (("k", "keys"), ("v", "values")):
        group.add_argument(
            f"-ct{letter}",
            f"--cache-type-{letter}",
            choices=list(binding.CACHE_TYPES),
            default="f16",
            metavar="TYPE",
            help=f"number type that attention keeps {what} in: {', '.join(binding.CACHE_TYPES)} "
            "(default: f16)",
        )
    group.add_argument(
        "-fa",
        "--flash-attn",
        choices=list(binding.FLASH_ATTENTION),
        default="auto",
        metavar="WHEN",
        help="flash attention: on, off, or auto, the default: wherever the device can",
    )
    group.add_argument(
        "-lm",
        "--load-mode",
        choices=list(binding.LOAD_MODES),
        metavar="MODE",
        help=f"how weights get into memory: {', '.join(binding.LOAD_MODES)} (default: auto, mapped "
        "if the device can)",
    )
    group.add_argument(
        "--mlock",
        action="store_true",
        help="keep weights in memory; the same as -lm mmap+mlock, or mlock with --no-mmap",
    )
    group.add_argument(
        "--mmap",
        action=argparse.BooleanOptionalAction,
        help="map the file, or read it; the same as -lm mmap, or none",
    )
    _add_template_arguments(group)
    group.add_argument(
        "--snapshots",
        type=int,
        default=0,
        metavar="N",
        help="recurrent-state snapshots a slot, so that short rejected tails are cut rather than "
        "forked; each costs one state's memory and some speed (default: 0)",
    )


def _add_template_arguments(group: "argparse._ArgumentGroup") -> None:
    """Add the options that put another chat template in the place of the file's."""
    template = group.add_mutually_exclusive_group()
    template.add_argument(
        "--chat-template",
        metavar="TEXT",
        help="Jinja2 chat template in the place of the file's, or 'chatml'",
    )
    template.add_argument(
        "--chat-template-file", type=Path, metavar="FILE", help="the same from a file"
    )


def _gpu_layers(text: str) -> int | None:
    if text == "auto":
        return None
    if text == "all":
        return 1 << 16
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number, 'auto' or 'all', not {text!r}"
        ) from None


def load_settings(
    options: argparse.Namespace, slots: int, longest_draft: int, *, mtp: bool = False
) -> LoadSettings:
    """What the options say about loading a model.

    Args:
        options: with those of `add_model_arguments`.
        slots: how many requests run at once.
        longest_draft: most draft tokens of a request in a pass.
        mtp: whether to load the model's own multi-token-prediction head, too.

    Raises:
        InvalidParameterError: a number is outside its range.
    """
    if slots < 1:
        raise InvalidParameterError("--parallel", f"must be at least 1, and is {slots}")
    if options.batch_size < slots:
        raise InvalidParameterError("--batch-size", f"must have room for each of {slots} slots")
    context = options.ctx_size
    if context:
        context //= slots
        if context < 32:
            raise InvalidParameterError(
                "--ctx-size", f"must be at least 32 tokens for each of {slots} slots"
            )
    mode, template = load_mode(options), _chat_template(options)
    with as_options():
        return LoadSettings(
            path=options.model,
            slots=slots,
            context_length=context,
            threads=options.threads,
            threads_batch=options.threads_batch,
            cache_type_k=options.cache_type_k,
            cache_type_v=options.cache_type_v,
            flash_attention=options.flash_attn,
            load_mode=mode,
            chat_template=template,
            gpu_layers=options.gpu_layers,
            batch_size=options.batch_size,
            micro_batch_size=min(options.ubatch_size, options.batch_size),
            longest_draft=longest_draft,
            snapshots=options.snapshots,
            mtp=mtp,
        )


def load_mode(options: argparse.Namespace) -> str:
    """How weights get into memory, by -lm or by the two older options.

    Raises:
        InvalidParameterError: they are given together.
    """
    if options.load_mode is None:
        modes = {
            (False, None): "auto",
            (False, True): "mmap",
            (False, False): "none",
            (True, None): "mmap+mlock",
            (True, True): "mmap+mlock",
            (True, False): "mlock",
        }
        return modes[options.mlock, options.mmap]
    if options.mlock or options.mmap is not None:
        raise InvalidParameterError("--load-mode", "says it all; leave out --mlock and --mmap")
    return str(options.load_mode)


def _chat_template(options: argparse.Namespace) -> str | None:
    """The chat template that the options ask for; None for the file's own.

    Raises:
        InvalidParameterError: it can't be read, or is none.
    """
    option = "--chat-template"
    source: str | None = options.chat_template
    if options.chat_template_file is not None:
        option = "--chat-template-file"
        source = read_text(option, options.chat_template_file)
    elif source == "chatml":
        return CHATML
    elif source is not None and "{" not in source:
        raise InvalidParameterError(
            option, f"there is none called {source!r}; give 'chatml', or a template's text"
        )
    if source is not None:
        try:
            ChatTemplate(source)
        except ChatTemplateError as error:
            problem = str(error).removeprefix("the model's chat template ")
            raise InvalidParameterError(option, problem) from error
    return source
