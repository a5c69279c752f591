"""`surefoot serve`: an OpenAI-compatible HTTP server around one model."""

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from surefoot.chat.formats import FORMATS
from surefoot.commands import options as shared
from surefoot.commands.plan import EnginePlan
from surefoot.commands.sampling_options import add_exactness_arguments, add_sampling_arguments
from surefoot.decoding import InvalidParameterError
from surefoot.drafting.options import add_speculation_arguments
from surefoot.engine import EngineHandle, EngineThread, Facts
from surefoot.runtime.libllama import load_vocabulary


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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
    shared.add_model_arguments(parser)
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
    add_speculation_arguments(parser)
    shared.add_logging_arguments(parser, "log what is done; twice: libllama's log, too")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    # Here, because the other commands do without the libraries of a server.
    from surefoot.server import AnswerSettings, bind, serve

    shared.set_up_logging(options)
    defaults = shared.sampling(options)
    plan = EnginePlan.of(options, options.parallel)
    if options.alias is not None and not options.alias.isprintable():
        raise InvalidParameterError("--alias", "must be printable text")
    if options.n_predict < 1 and options.n_predict != -1:
        raise InvalidParameterError("-n", "must be at least 1, or -1 for no limit")
    if options.reasoning_budget < -1:
        raise InvalidParameterError("--reasoning-budget", "must be -1 (no limit) or more")
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
    answers = AnswerSettings(
        exact=options.exact,
        rule=options.verify,
        tool_format=options.tool_format,
        reasoning_format=options.reasoning_format,
        reasoning_budget=options.reasoning_budget,
    )
    with bind(options.host, options.port) as listener:
        print(f"surefoot: loading {options.model.name}", file=sys.stderr)
        with _engine_for(options, plan) as handle:
            serve(
                handle,
                listener,
                model_name=options.alias or handle.facts.info.name or options.model.stem,
                defaults=defaults,
                seed=options.seed,
                answers=answers,
                drain_seconds=options.drain_timeout,
                max_tokens=None if options.n_predict == -1 else options.n_predict,
                ready=lambda url: print(_welcome(url, handle.facts), file=sys.stderr, flush=True),
            )
    print("surefoot: stopped", file=sys.stderr)
    return 0


@contextmanager
def _engine_for(options: argparse.Namespace, plan: EnginePlan) -> Iterator[EngineHandle]:
    """The engine at work, in a worker or in this process; stopped at the end of the context.

    Raises:
        SurefootError: it can't be had; the text says why.
    """
    if options.in_process:
        with plan.open() as engine, ExitStack() as stack:
            if options.exact == "strict":
                engine.check_strict()
            thread = EngineThread(engine)
            thread.start()
            stack.callback(thread.stop)
            yield thread
        return
    from surefoot.worker import Supervisor, WorkerProcess
    from surefoot.worker.process import python

    def command(descriptor: int) -> list[str]:
        return [*python("surefoot.commands.worker"), f"{descriptor}", *options.arguments]

    with ExitStack() as stack:
        supervisor = Supervisor(
            lambda: WorkerProcess(command),
            lambda: load_vocabulary(plan.settings.file),
            options.worker_timeout,
        )
        stack.callback(supervisor.stop)
        supervisor.start()
        yield supervisor


def _welcome(url: str, facts: Facts) -> str:
    drafter = "none (speculation is off)"
    if facts.drafter:
        drafter = f"{facts.drafter}, at most {facts.max_draft} tokens a draft"
    if facts.synthetic:
        drafter += ", accepted by chance: THE TEXT IS NOT THE MODEL'S"
    return (
        f"surefoot: {facts.info.name} ({facts.info.architecture}, {facts.info.memory}), "
        f"{facts.slots} slots of {facts.context_length} tokens\n"
        f"surefoot: drafter {drafter}, rejected drafts undone by {facts.rollback.kind}\n"
        f"surefoot: strict decoding {_strict(facts)}\n"
        f"surefoot: listening on {url}, OpenAI base URL {url}/v1 (Ctrl-C ends it)"
    )


def _strict(facts: Facts) -> str:
    exactness = facts.exactness
    if not exactness.get("strict"):
        return f"is not available: {exactness.get('refusal', 'not measured')}"
    return (
        f"in passes of {exactness['strict']} tokens: a plain round costs "
        f"{exactness['plain_cost']:.2f} and a prefill "
        f"{exactness['prefill_cost']:.2f} times as much as a fast one"
    )
