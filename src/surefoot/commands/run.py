"""`surefoot run`: answer one prompt on the terminal, and say what speculation did for it."""

import argparse
import os
import signal
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from surefoot.chat.template import ChatTemplate
from surefoot.commands import options as shared
from surefoot.commands.model_options import add_model_arguments
from surefoot.commands.parser import CommandParser
from surefoot.commands.plan import EnginePlan
from surefoot.commands.recording import add_record_argument
from surefoot.commands.sampling_options import add_exactness_arguments, add_sampling_arguments
from surefoot.constraints import ControlSpec, Grammar
from surefoot.decoding import InvalidParameterError, SurefootError
from surefoot.drafting.options import add_speculation_arguments
from surefoot.engine import Delta, Engine, Generation, GenerationState, Request
from surefoot.runtime.base import Runtime

GREEN, PLAIN = "\x1b[32m", "\x1b[0m"


class GenerationFailedError(SurefootError):
    """The generation could not be finished."""


def add_parser(subparsers: "argparse._SubParsersAction[CommandParser]") -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "run",
        help="answer one prompt on the terminal",
        description="Answer one prompt: the text goes to stdout, a table of figures to stderr.",
    )
    parser.set_defaults(function=run, command="run", log_from=2)
    prompt = parser.add_argument_group("prompt")
    prompt.add_argument("prompt", nargs="?", help="the prompt; '-' or none reads stdin")
    prompt.add_argument("-p", "--prompt", dest="prompt_option", metavar="TEXT", help="the same")
    prompt.add_argument("-f", "--file", type=Path, metavar="FILE", help="read the prompt from here")
    prompt.add_argument("--system", metavar="TEXT", help="system message in front of the prompt")
    prompt.add_argument(
        "--raw", action="store_true", help="go on with the prompt's text; no chat template"
    )
    prompt.add_argument(
        "-n",
        "--n-predict",
        "--predict",
        type=int,
        default=-1,
        metavar="N",
        help="most tokens to generate (default: -1, to the end of the context)",
    )
    add_model_arguments(parser)
    add_sampling_arguments(parser)
    add_exactness_arguments(parser)
    form = parser.add_argument_group("form").add_mutually_exclusive_group()
    form.add_argument("-j", "--json-schema", metavar="SCHEMA", help="the text is JSON like that")
    form.add_argument(
        "-jf", "--json-schema-file", type=Path, metavar="FILE", help="the same from a file"
    )
    form.add_argument("--grammar", metavar="TEXT", help="GBNF, or Lark if it begins so")
    form.add_argument("--grammar-file", type=Path, metavar="FILE", help="the same from a file")
    add_speculation_arguments(parser)
    add_record_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    shared.add_logging_arguments(parser, "colour accepted draft tokens; twice: log, too")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    shared.set_up_logging(options)
    prompt = read_prompt(options)
    control = _control(options)
    plan = EnginePlan.of(options, slots=1)
    if options.n_predict < 1 and options.n_predict != -1:
        raise InvalidParameterError("-n", "must be at least 1, or -1 for no limit")
    with plan.open() as engine:
        request = Request(
            prompt=tuple(tokenize(engine.runtime, prompt, options)),
            sampling=plan.sampling,
            max_tokens=None if options.n_predict == -1 else options.n_predict,
            exact=options.exact,
            rule=options.verify,
            control=control,
        )
        generation = generate(engine, request, Printer(options))
        report(options, engine, generation)
    if generation.error is not None:
        raise GenerationFailedError(f"generation stopped: {generation.error}")
    return 130 if generation.state is GenerationState.CANCELLED else 0


def _control(options: argparse.Namespace) -> ControlSpec | None:
    """The rules for the text that the options ask for."""
    schema = options.json_schema
    if options.json_schema_file is not None:
        schema = shared.read_text("--json-schema-file", options.json_schema_file)
    if schema is not None:
        return ControlSpec(Grammar("json_schema", schema))
    source = options.grammar
    if options.grammar_file is not None:
        source = shared.read_text("--grammar-file", options.grammar_file)
    return None if source is None else ControlSpec(Grammar("gbnf", source))


def read_prompt(options: argparse.Namespace) -> str:
    """The prompt's text, from wherever the options say; one newline at its end is dropped.

    Raises:
        InvalidParameterError: there is none, more than one, or it can't be read.
    """
    given = [
        value
        for value in (options.prompt, options.prompt_option, options.file)
        if value not in (None, "-")
    ]
    if len(given) > 1:
        raise InvalidParameterError("prompt", "give one prompt: an argument, -p, or -f")
    if not given:
        if sys.stdin is None or sys.stdin.isatty():
            raise InvalidParameterError(
                "prompt", "none given; try: surefoot run 'Write a Python function that adds'"
            )
        text = _decoded(sys.stdin.buffer.read(), "stdin")
    elif options.file is not None:
        try:
            text = _decoded(options.file.read_bytes(), str(options.file))
        except OSError as error:
            raise InvalidParameterError("--file", f"{options.file}: {error.strerror}") from error
    else:
        text = given[0]
    if not text.strip():
        raise InvalidParameterError("prompt", "is empty")
    return text.removesuffix("\n")


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidParameterError("prompt", f"{source} is not UTF-8 text: {error}") from error


def tokenize(runtime: Runtime, prompt: str, options: argparse.Namespace) -> list[int]:
    """The prompt in tokens, as a user's message of a chat unless --raw."""
    if options.raw:
        return runtime.tokenizer.encode(prompt, special=True, add_special=True)
    return as_chat_tokens(runtime, prompt, options.system)


def as_chat_tokens(runtime: Runtime, prompt: str, system: str | None = None) -> list[int]:
    """A chat with one user's message in tokens; plain text if the model has no chat template."""
    info = runtime.info
    if info.chat_template is None:
        return runtime.tokenizer.encode(prompt, special=True, add_special=True)
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    template = ChatTemplate(info.chat_template, info.bos_text, info.eos_text)
    return runtime.tokenizer.encode(template.render(messages), special=True)


class Printer:
    """Streams text to stdout as it comes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._silent = options.json
        self._colours = options.verbose > 0 and not os.environ.get("NO_COLOR")

    def __call__(self, delta: Delta) -> None:
        """Print a delta."""
        if self._silent:
            return
        for drafted, spans in groupby(delta.spans, key=lambda span: span.drafted):
            text = "".join(span.text for span in spans)
            sys.stdout.write(f"{GREEN}{text}{PLAIN}" if drafted and self._colours else text)
        sys.stdout.flush()


def generate(engine: Engine, request: Request, printer: Printer) -> Generation:
    """Generate to the end, or to the first Ctrl-C."""
    generation = engine.submit(request, printer)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        generation.cancelled = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        while not generation.state.over:
            engine.step()
    finally:
        signal.signal(signal.SIGINT, before)
    return generation


def report(options: argparse.Namespace, engine: Engine, generation: Generation) -> None:
    """Say what was done: one JSON object on stdout, or a table on stderr."""
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(as_json(engine, generation)) + b"\n")
        sys.stdout.flush()
        return
    sys.stdout.write("\n")
    sys.stdout.flush()
    Console(stderr=True).print(as_table(engine, generation))


def as_json(engine: Engine, generation: Generation) -> dict[str, Any]:
    """All of a generation as one JSON object."""
    summary, counts = generation.summary, generation.summary.counts
    finish = generation.finish
    return {
        "text": generation.text,
        "token_ids": generation.tokens,
        "model": engine.runtime.info.name,
        "prompt_tokens": summary.prompt_tokens,
        "cached_tokens": summary.cached_tokens,
        "generated_tokens": summary.generated_tokens,
        "rounds": counts.rounds,
        "passes": summary.passes,
        "drafter": engine.drafter.name if engine.drafter else "none",
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "drafted_by_position": counts.drafted_by_position,
        "accepted_by_position": counts.accepted_by_position,
        "by_drafter": {name: asdict(part) for name, part in counts.by_drafter.items()},
        "drafter_errors": counts.drafter_errors,
        "synthetic": summary.synthetic,
        "mean_length": counts.mean_length,
        "rollback": engine.runtime.rollback.kind,
        "rollbacks": counts.rollbacks,
        "rollback_bytes": summary.rollback_bytes,
        "recoveries": summary.recoveries,
        "near_ties": counts.near_ties,
        "prefill_tokens_per_s": summary.prefill_tokens_per_s,
        "decode_tokens_per_s": summary.decode_tokens_per_s,
        "finish_reason": finish.reason if finish else generation.state.value,
        "finish_cause": finish.cause if finish else generation.error,
        "seed": generation.request.sampling.seed,
    }


def as_table(engine: Engine, generation: Generation) -> Table:
    """A generation's figures for a person."""
    summary, counts = generation.summary, generation.summary.counts
    finish = generation.finish
    title = engine.runtime.info.name
    if summary.synthetic:
        title += ": drafts accepted by chance, THE TEXT IS NOT THE MODEL'S"
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="dim")
    table.add_column()
    rows = {
        "tokens": f"{summary.prompt_tokens} prompt, {summary.generated_tokens} generated "
        f"({finish.cause if finish else generation.state.value})",
        "rounds": f"{counts.rounds}, {summary.passes} forward passes",
        "drafts": f"{engine.drafter.name if engine.drafter else 'none'}: {counts.drafted} drafted, "
        f"{counts.accepted} accepted"
        + _percent(counts.acceptance)
        + _failures(counts.drafter_errors),
        "acceptance by position": _by_position(
            counts.accepted_by_position, counts.drafted_by_position
        ),
        "mean tokens a round": f"{counts.mean_length:.2f}" if counts.mean_length else "-",
        "roll-backs": f"{counts.rollbacks} by {engine.runtime.rollback.kind}, "
        f"{summary.rollback_bytes} bytes of state moved",
        "near ties": f"{counts.near_ties}",
        "speed": f"prefill {_speed(summary.prefill_tokens_per_s)}, "
        f"decode {_speed(summary.decode_tokens_per_s)}",
        "seed": f"{generation.request.sampling.seed}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _percent(share: float | None) -> str:
    return f" ({share:.0%})" if share is not None else ""


def _failures(count: int) -> str:
    return f", failed {count} times (the log says why)" if count else ""


def _by_position(accepted: list[int], drafted: list[int]) -> str:
    shown = [f"{a / d:.0%}" for a, d in zip(accepted, drafted, strict=True)]
    return " ".join(shown[:12]) + (" ..." if len(shown) > 12 else "") if shown else "-"


def _speed(tokens_per_s: float | None) -> str:
    return f"{tokens_per_s:.0f} tokens/s" if tokens_per_s is not None else "-"
