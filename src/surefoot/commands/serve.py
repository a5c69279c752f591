"""`surefoot serve`: an OpenAI-compatible HTTP server around one model."""

import argparse
import sys
from pathlib import Path

from surefoot.chat.formats import FORMATS
from surefoot.commands import options as shared
from surefoot.commands.cache_options import add_cache_arguments, cache_line
from surefoot.commands.llama_server import add_ineffective_arguments
from surefoot.commands.model_options import add_model_arguments
from surefoot.commands.parser import CommandParser
from surefoot.commands.plan import EnginePlan
from surefoot.commands.sampling_options import add_exactness_arguments, add_sampling_arguments
from surefoot.decoding import InvalidParameterError
from surefoot.drafting.options import add_speculation_arguments
from surefoot.engine import PATIENCE, STALL_SECONDS, Engine, QueueSettings
from surefoot.runtime.base import Runtime


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
        queue = QueueSettings(options.queue, options.queue_timeout)
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
    if options.exact == "strict" and options.verify == "rejection":
        raise InvalidParameterError(
            "--verify",
            "must be coupled with --exact strict: with rejection the text hangs on the drafts",
        )
    if plan.sampling.mirostat and options.verify == "rejection":
        raise InvalidParameterError(
            "--verify", "must be coupled with --mirostat, which steers by single choices"
        )
    keys = _keys(options)
    answers = AnswerSettings(
        exact=options.exact,
        rule=options.verify,
        tool_format=options.tool_format,
        reasoning_format=options.reasoning_format,
        reasoning_budget=options.reasoning_budget,
    )
    with bind(options.host, options.port) as listener:
        print(f"surefoot: loading {options.model.name}", file=sys.stderr)
        with plan.open(queue) as engine:
            if options.exact == "strict":
                engine.check_strict()
            serve(
                engine,
                listener,
                model_name=options.alias or _model_name(engine.runtime, options.model),
                defaults=plan.sampling,
                seed=options.seed,
                answers=answers,
                keys=keys,
                max_tokens=None if options.n_predict == -1 else options.n_predict,
                ready=lambda url: print(_welcome(url, engine), file=sys.stderr, flush=True),
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


def _model_name(runtime: Runtime, path: Path) -> str:
    return runtime.info.name or path.stem


def _welcome(url: str, engine: Engine) -> str:
    runtime = engine.runtime
    drafter = "none (speculation is off)"
    if engine.drafter:
        drafter = f"{engine.drafter.name}, at most {engine.max_draft} tokens a draft"
    if engine.synthetic:
        drafter += ", accepted by chance: THE TEXT IS NOT THE MODEL'S"
    return (
        f"surefoot: {runtime.info.name} ({runtime.info.architecture}, {runtime.info.memory}), "
        f"{runtime.slots} slots of {runtime.context_length} tokens\n"
        f"surefoot: drafter {drafter}, rejected drafts undone by {runtime.rollback.kind}\n"
        f"surefoot: prompt cache {cache_line(engine.cache.describe(), engine.cache.settings)}\n"
        f"surefoot: strict decoding {_strict(engine)}\n"
        f"surefoot: listening on {url}, OpenAI base URL {url}/v1 (Ctrl-C ends it)"
    )


def _strict(engine: Engine) -> str:
    facts = engine.exactness
    if not facts.get("strict"):
        return f"is not available: {facts.get('refusal', 'not measured')}"
    return (
        f"in passes of {facts['strict']} tokens: a plain round costs {facts['plain_cost']:.2f} and "
        f"a prefill {facts['prefill_cost']:.2f} times as much as a fast one"
    )
