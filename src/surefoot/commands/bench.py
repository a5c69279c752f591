"""`surefoot bench`: plain against speculative decoding, and what surefoot's own code costs."""

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from surefoot.bench.compare import Row, compare, rows
from surefoot.bench.overhead import (
    RollbackCost,
    RoundCost,
    decoding_cost,
    rollback_cost,
    whole_round_cost,
)
from surefoot.bench.prompts import PROMPTS, Prompt
from surefoot.commands import options as shared
from surefoot.commands.model_options import add_model_arguments, load_settings
from surefoot.commands.parser import CommandParser
from surefoot.commands.plan import EnginePlan
from surefoot.commands.run import as_chat_tokens
from surefoot.commands.sampling_options import add_sampling_arguments
from surefoot.decoding import InvalidParameterError
from surefoot.drafting.options import add_speculation_arguments
from surefoot.runtime.libllama import load

ROLLBACK_CONTEXTS = (1024, 8192)
"""Tokens of context behind which a roll-back is measured."""

_LEGEND = (
    "ratio, (range): speed of drafted by plain, median and extremes of the pairs\n"
    "acc.: draft tokens accepted; t/pass: tokens committed by a forward pass\n"
    "=/~/x: pairs with the same tokens / parting at a near tie / parting elsewhere"
)


def add_parser(subparsers: "argparse._SubParsersAction[CommandParser]") -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "bench",
        help="compare plain and speculative decoding",
        description="Run the same prompts plainly and with speculation, pairwise in one run.",
    )
    parser.set_defaults(function=run, command="bench")
    parser.add_argument(
        "--prompts", type=Path, metavar="FILE", help="one prompt a line (default: a built-in set)"
    )
    parser.add_argument(
        "-n", "--n-predict", type=int, default=200, metavar="N", help="tokens a run (%(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="pairs of each prompt (%(default)s)"
    )
    parser.add_argument(
        "--overhead",
        action="store_true",
        help="measure surefoot's own time per round and the cost of a roll-back, and no prompts",
    )
    add_model_arguments(parser)
    add_sampling_arguments(parser)
    parser.set_defaults(temp=0.0, seed=1)
    add_speculation_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    shared.add_logging_arguments(parser, "log what is done; twice: libllama's log, too")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    shared.set_up_logging(options)
    for name in ("n_predict", "repeats"):
        if getattr(options, name) < 1:
            raise InvalidParameterError(f"--{name.replace('_', '-')}", "must be at least 1")
    result = measure_overhead(options) if options.overhead else measure_prompts(options)
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(result, default=asdict) + b"\n")
    else:
        for table in as_tables(result):
            Console().print(table)
    return 0


def measure_prompts(options: argparse.Namespace) -> dict[str, Any]:
    """Compare plain and speculative decoding."""
    plan = EnginePlan.of(options, slots=1)
    if not plan.speculation.chosen:
        raise InvalidParameterError("--spec-type", "is 'none', so there is nothing to compare")
    prompts = read_prompts(options.prompts) if options.prompts else PROMPTS
    console = Console(stderr=True)
    with plan.open() as engine:
        with console.status("starting") as status:
            pairs = compare(
                engine,
                prompts,
                lambda text: as_chat_tokens(engine.runtime, text),
                sampling=plan.sampling,
                max_tokens=options.n_predict,
                repeats=options.repeats,
                progress=status.update,
            )
        return {
            "model": engine.runtime.info.name,
            "rollback": engine.runtime.rollback.kind,
            "synthetic": plan.synthetic is not None,
            "rows": rows(pairs, engine.drafter.name if engine.drafter else "none"),
        }


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file, one a line.

    Raises:
        InvalidParameterError: it can't be read, or there is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParameterError("--prompts", f"can't read {path}: {error}") from error
    prompts = [Prompt(path.name, line) for line in lines if line.strip()]
    if not prompts:
        raise InvalidParameterError("--prompts", f"{path} holds no prompts")
    return prompts


def measure_overhead(options: argparse.Namespace) -> dict[str, Any]:
    """Measure Python's own time per round, and the cost of a roll-back."""
    settings = load_settings(options, slots=4, longest_draft=64)
    own = [decoding_cost(size, n) for size in (8192, 151_936) for n in (1, 4)]
    runtime = load(replace(settings, context_length=256))
    try:
        own += [whole_round_cost(runtime, n) for n in (1, 4)]
    finally:
        runtime.close()
    runtime = load(replace(settings, context_length=max(ROLLBACK_CONTEXTS) + 512, slots=1))
    try:
        costs = [rollback_cost(runtime, context) for context in ROLLBACK_CONTEXTS]
    finally:
        runtime.close()
    return {"rounds": own, "rollbacks": costs}


def as_tables(result: dict[str, Any]) -> list[Table]:
    """The result for a person."""
    if "rows" in result:
        mark = ", ACCEPTED BY CHANCE" if result["synthetic"] else ""
        return [_rows_table(result["model"] + mark, result["rows"])]
    return [_rounds_table(result["rounds"]), _rollbacks_table(result["rollbacks"])]


def _rows_table(model: str, table_rows: list[Row]) -> Table:
    drafter = table_rows[0].drafter
    title = f"{model}: {drafter} against plain decoding (tokens/s)"
    table = Table(
        title=title, title_justify="left", box=SIMPLE, caption=_LEGEND, caption_justify="left"
    )
    table.add_column("prompts", no_wrap=True, min_width=12)
    for name in ("plain", "drafted", "ratio", "(range)", "acc.", "t/pass", "=/~/x"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in table_rows:
        table.add_row(
            row.prompts,
            f"{row.plain_tokens_per_s:.0f}",
            f"{row.tokens_per_s:.0f}",
            f"{row.ratio:.2f}",
            f"{row.ratio_min:.2f}-{row.ratio_max:.2f}",
            "-" if row.acceptance is None else f"{row.acceptance:.0%}",
            f"{row.tokens_per_pass:.2f}",
            "/".join(str(count) for count in row.equal.values()),
        )
    return table


def _rounds_table(costs: list[RoundCost]) -> Table:
    table = Table(title="Python's own time in a round", title_justify="left")
    for name in ("target", "vocabulary", "sequences", "median", "goal"):
        table.add_column(name)
    for cost in costs:
        table.add_row(
            cost.target,
            str(cost.vocabulary),
            str(cost.sequences),
            f"{cost.microseconds:.0f} us",
            f"{cost.allowed:.0f} us",
        )
    return table


def _rollbacks_table(costs: list[RollbackCost]) -> Table:
    table = Table(title="Undoing a rejected draft", title_justify="left")
    for name in ("by", "context", "follow", "roll back", "together"):
        table.add_column(name)
    for cost in costs:
        table.add_row(
            cost.kind,
            str(cost.context),
            f"{cost.follow:.0f} us",
            f"{cost.roll_back:.0f} us",
            f"{cost.together:.0f} us",
        )
    return table
