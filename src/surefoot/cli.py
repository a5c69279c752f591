"""The command line: parses options, runs a subcommand, and turns errors into words."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from surefoot import __version__
from surefoot.decoding import InvalidParameterError, SurefootError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `surefoot` and return its exit code: 0, 1 for an error, 2 for a usage error."""
    _prepare_streams()
    try:
        options = parser().parse_args(arguments)
        options.arguments = list(sys.argv[1:] if arguments is None else arguments)
        code: int = options.function(options)
    except InvalidParameterError as error:
        print(f"surefoot: error: {error}", file=sys.stderr)
        return 2
    except SurefootError as error:
        print(f"surefoot: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        # The text can't be written: the disk is full, or whoever read it has gone, which is no
        # news to anybody. Keep the interpreter from trying again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"surefoot: error: {error}", file=sys.stderr)
        return 1
    return code


def _prepare_streams() -> None:
    """Print what the terminal's encoding lacks as '?', and nothing to streams that are closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open to the end
        getattr(sys, name).reconfigure(errors="replace")


def parser() -> argparse.ArgumentParser:
    """The parser with all subcommands.

    Raises:
        ModelLoadError: libllama can't be loaded.
    """
    # Here, so that a Ctrl-C or a missing library while all of it loads is no traceback.
    from surefoot.commands import bench, replay, run, serve
    from surefoot.commands.parser import CommandParser, OneLineParser

    top = OneLineParser(
        prog="surefoot",
        description="Run GGUF models with speculative decoding that never loses its footing.",
    )
    top.add_argument("--version", action="version", version=f"surefoot {__version__}")
    subparsers = top.add_subparsers(required=True, metavar="COMMAND", parser_class=CommandParser)
    run.add_parser(subparsers)
    serve.add_parser(subparsers)
    bench.add_parser(subparsers)
    replay.add_parser(subparsers)
    return top
