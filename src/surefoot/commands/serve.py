"""`surefoot serve`: an OpenAI-compatible HTTP server around one model."""

import argparse
import math
import sys
from pathlib import Path

from surefoot.chat.formats import FORMATS
from surefoot.commands import options as shared
from surefoot.commands.cache_options import add_cache_arguments
from surefoot.commands.llama_server import add_ineffective_arguments
from surefoot.commands.model_options import add_model_arguments
from surefoot.commands.parser import CommandParser
from surefoot.commands.plan import EnginePlan
from surefoot.commands.recording import add_record_argument
from surefoot.commands.running import engine_at_work, queue_settings
from surefoot.commands.sampling_options import add_exactness_arguments, add_sampling_arguments
from surefoot.commands.slot_options import add_slot_arguments, slot_folder
from surefoot.commands.welcome import welcome
from surefoot.decoding import InvalidParameterError
from surefoot.drafting.options import add_speculation_arguments
from surefoot.engine import PATIENCE, STALL_SECONDS


def add_parser(subparsers: "argparse._SubParsersAction[CommandParser]") -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "serve",
        help="serve HTTP, in OpenAI's dialect",
        description="Serve a model over HTTP to OpenAI's clients, several requests at once.",
    )
    parser.set_defaults(function=run, command="serve")
    server = parser.add_argument_group("server")
    server.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    server.add_argument(
        "--port", type=int, default=8080, metavar="N", help="0 picks one (default: %(default)s)"
    )
    server.add_argument(
        "-np",
        "--parallel",
        type=int,
        default=4,
        metavar="N",
        help="slots: how many requests run at once (default: %(default)s)",
    )
    server.add_argument(
        "--queue",
        type=int,
        default=256,
        metavar="N",
        help="how many requests may wait for a slot; further ones get a 429 (default: %(default)s)",
    )
    server.add_argument(
        "--queue-timeout",
        type=float,
        metavar="S",
        help="a request that has waited so many seconds gets a 503 (default: no limit)",
    )
    server.add_argument(
        "--context-shift",
        action="store_true",
        help="a text that fills its context goes on, and the model forgets its middle; for "
        "requests with a limit on their tokens, and attention memory only",
    )
    server.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="KEY,...",
        help="requests must have one of these keys, all but GET /health and /v1/models; others on "
        "this machine can read it in the list of processes (default: everybody is let in)",
    )
    server.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="keys from a file, one a line; lines that begin with # are comments",
    )
    server.add_argument("-a", "--alias", metavar="NAME", help="what to call the model")
    server.add_argument(
        "-n",
        "--n-predict",
        "--predict",
        type=int,
        default=-1,
        metavar="N",
        help="most tokens for requests that set no limit (default: -1, to the end of the context)",
    )
    server.add_argument(
        "--stall-seconds",
        type=float,
        default=STALL_SECONDS,
        metavar="S",
        help="a slot that does not move for so long makes /health degraded (default: %(default)g)",
    )
    server.add_argument(
        "--watchdog-rounds",
        type=int,
        default=PATIENCE,
        metavar="N",
        help="rounds in a row without an accepted draft token that end a request's speculation; "
        "0 for any number (default: %(default)s)",
    )
    server.add_argument(
        "--drain-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="after SIGTERM or Ctrl-C open requests may go on so long; a second signal ends them "
        "(default: %(default)g)",
    )
    worker = parser.add_argument_group("worker")
    worker.add_argument(
        "--in-process",
        action="store_true",
        help="run the model in the server's own process, to debug it: a crash ends the server",
    )
    worker.add_argument(
        "--worker-timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="start the worker process again when it has work and gets nowhere for so long; it "
        "must be longer than any single pass takes (default: %(default)g)",
    )
    add_model_arguments(parser)
    add_sampling_arguments(parser)
    add_exactness_arguments(parser)
    answers = parser.add_argument_group("answers")
    answers.add_argument(
        "--tool-format",
        choices=["auto", *sorted(FORMATS)],
        default="auto",
        help="how the model writes tool calls (default: auto, as its chat template tells)",
    )
    answers.add_argument(
        "--reasoning-format",
        choices=["auto", "none", "deepseek"],
        default="auto",
        help="none leaves reasoning in the content; else it is told apart as reasoning_content",
    )
    answers.add_argument(
        "--reasoning-budget",
        type=int,
        default=-1,
        metavar="N",
        help="most tokens of reasoning; 0 for none, -1 for no limit (default: -1)",
    )
    answers.add_argument(
        "--self-check",
        type=float,
        default=0.0,
        metavar="P",
        help="score this share of the answers again without speculation, when idle (default: 0)",
    )
    add_cache_arguments(parser)
    add_slot_arguments(parser)
    add_record_argument(parser)
    add_speculation_arguments(parser)
    add_ineffective_arguments(parser)
    shared.add_logging_arguments(parser, "log what is done; twice: libllama's log, too")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    # Here, because the other commands do without the libraries of a server.
    from surefoot.server import AnswerSettings, bind, serve

    shared.set_up_logging(options)
    plan = EnginePlan.of(options, options.parallel)
    with shared.as_options():
        queue = queue_settings(options)
    if options.alias is not None and not options.alias.isprintable():
        raise InvalidParameterError("--alias", "must be printable text")
    if options.n_predict < 1 and options.n_predict != -1:
        raise InvalidParameterError("-n", "must be at least 1, or -1 for no limit")
    if options.reasoning_budget < -1:
        raise InvalidParameterError("--reasoning-budget", "must be -1 (no limit) or more")
    if not options.stall_seconds > 0:
        raise InvalidParameterError("--stall-seconds", "must be above 0")
    if options.watchdog_rounds < 0:
        raise InvalidParameterError("--watchdog-rounds", "must be 0 (any number) or more")
    if not 0 <= options.self_check <= 1:
        raise InvalidParameterError("--self-check", "must be a share from 0 to 1")
    if not 0 <= options.drain_timeout < math.inf:
        raise InvalidParameterError("--drain-timeout", "must be 0 or more seconds")
    if not 0 < options.worker_timeout < math.inf:
        raise InvalidParameterError("--worker-timeout", "must be more than 0 seconds")
    if options.exact == "strict" and options.verify == "rejection":
        raise InvalidParameterError(
            "--verify",
            "must be coupled with --exact strict: with rejection the text hangs on the drafts",
        )
    if plan.sampling.mirostat and options.verify == "rejection":
        raise InvalidParameterError(
            "--verify", "must be coupled with --mirostat, which steers by single choices"
        )
    keys, folder = _keys(options), slot_folder(options)
    answers = AnswerSettings(
        exact=options.exact,
        rule=options.verify,
        tool_format=options.tool_format,
        reasoning_format=options.reasoning_format,
        reasoning_budget=options.reasoning_budget,
    )
    with bind(options.host, options.port) as listener:
        print(f"surefoot: loading {options.model.name}", file=sys.stderr)
        with engine_at_work(options, plan, queue) as handle:
            serve(
                handle,
                listener,
                model_name=options.alias or handle.facts.info.name or options.model.stem,
                defaults=plan.sampling,
                seed=options.seed,
                answers=answers,
                keys=keys,
                slot_folder=folder,
                drain_seconds=options.drain_timeout,
                max_tokens=None if options.n_predict == -1 else options.n_predict,
                ready=lambda url: print(
                    welcome(url, handle.facts, plan.cache), file=sys.stderr, flush=True
                ),
            )
    print("surefoot: stopped", file=sys.stderr)
    return 0


def _keys(options: argparse.Namespace) -> tuple[str, ...]:
    """The API keys, those of the file included.

    Raises:
        InvalidParameterError: the file can't be read, or there is an option and no key.
    """
    keys = [key.strip() for text in options.api_key for key in text.split(",")]
    if options.api_key_file is not None:
        lines = shared.read_text("--api-key-file", options.api_key_file).splitlines()
        keys += [line.strip() for line in lines if not line.startswith("#")]
    found = tuple(filter(None, keys))
    if not found and (options.api_key or options.api_key_file is not None):
        name = "--api-key" if options.api_key else "--api-key-file"
        raise InvalidParameterError(name, "holds no key; leave it out to let everybody in")
    return found
