"""Command-line options that several subcommands share, under llama-server's names."""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot import models
from surefoot.commands.sampling_options import OPTION_NAMES, sampling_of
from surefoot.decoding import InvalidParameterError, Sampling
from surefoot.runtime.libllama import LoadSettings

_NAMES = {
    **OPTION_NAMES,
    "context_length": "ctx-size",
    "micro_batch_size": "ubatch-size",
    "slots": "parallel",
}
"""Options whose parameter is called something else."""


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
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        type=_gpu_layers,
        metavar="N",
        help="layers to keep on the GPU, or 'all' (default: all, if there is a GPU backend)",
    )
    group.add_argument(
        "-b", "--batch-size", type=int, default=2048, metavar="N", help="most tokens in a pass"
    )
    group.add_argument(
        "-ub", "--ubatch-size", type=int, default=512, metavar="N", help="tokens in a graph run"
    )
    group.add_argument(
        "--snapshots",
        type=int,
        default=0,
        metavar="N",
        help="recurrent-state snapshots a slot, so that short rejected tails are cut rather than "
        "forked; each costs one state's memory and some speed (default: 0)",
    )


def _gpu_layers(text: str) -> int:
    if text == "all":
        return 1 << 16
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number or 'all', not {text!r}") from None


@contextmanager
def as_options() -> Iterator[None]:
    """Give parameters that are outside their range the names of the options they came from."""
    try:
        yield
    except InvalidParameterError as error:
        name = _NAMES.get(error.name, error.name)
        raise InvalidParameterError(f"--{name.replace('_', '-')}", error.problem) from None


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
    with as_options():
        return LoadSettings(
            path=options.model,
            slots=slots,
            context_length=context,
            threads=options.threads,
            gpu_layers=options.gpu_layers,
            batch_size=options.batch_size,
            micro_batch_size=min(options.ubatch_size, options.batch_size),
            longest_draft=longest_draft,
            snapshots=options.snapshots,
            mtp=mtp,
        )


def sampling(options: argparse.Namespace) -> Sampling:
    """The sampling parameters that the options ask for.

    Raises:
        InvalidParameterError: a value is outside its range.
    """
    with as_options():
        return sampling_of(options)


def add_logging_arguments(parser: argparse.ArgumentParser, verbose_help: str) -> None:
    """Add -v."""
    parser.add_argument("-v", "--verbose", action="count", default=0, help=verbose_help)


def set_up_logging(options: argparse.Namespace) -> None:
    """Warnings by default; from the -v on that asks for it more, and with another libllama's log.

    A subcommand whose first -v means something else sets `log_from` to 2.
    """
    asked = options.verbose - getattr(options, "log_from", 1) + 1
    level = {0: logging.WARNING, 1: logging.INFO}.get(max(asked, 0), logging.DEBUG)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level)
    logging.getLogger("surefoot.requests").setLevel(min(level, logging.INFO))
    if level > logging.DEBUG:
        logging.getLogger("surefoot.libllama").setLevel(logging.CRITICAL)
        for name in ("asyncio", "httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
