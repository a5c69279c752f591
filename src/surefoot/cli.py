"""The command line: parses options, runs a subcommand, and turns errors into words."""

import argparse
import os
import sys
from collections.abc import Sequence

from surefoot import __version__
from surefoot.commands import bench, run, serve
from surefoot.commands.options import set_up_logging
from surefoot.decoding import InvalidParameterError, SurefootError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `surefoot` and return its exit code: 0, 1 for an error, 2 for a usage error."""
    options = parser().parse_args(arguments)
    set_up_logging(options)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code: int = options.function(options)
    except InvalidParameterError as error:
        print(f"surefoot: error: {error}", file=sys.stderr)
        return 2
    except SurefootError as error:
        print(f"surefoot: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the text has gone; keep the interpreter from flushing to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def parser() -> argparse.ArgumentParser:
    """The parser with all subcommands."""
    top = argparse.ArgumentParser(
        prog="surefoot",
        description="Run GGUF models with speculative decoding that never loses its footing.",
    )
    top.add_argument("--version", action="version", version=f"surefoot {__version__}")
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")
    run.add_parser(subparsers)
    serve.add_parser(subparsers)
    bench.add_parser(subparsers)
    return top
