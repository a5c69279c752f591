#!/usr/bin/env python3
"""Measure draft acceptance of llama-server on five prompts at temperature 0.

Here: prompts, the kinds of speculation, acceptance, and whether the text equals plain decoding's.
Not here: the quality of the logits (`verify_logits.py`).
"""

import argparse
import http.client
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

START_SECONDS = 60
REQUEST_SECONDS = 300
STOP_SECONDS = 20

RENAME_PROMPT = '''Rename `value` to `amount`.
```python
def total(items, value=None):
    """Return the sum of the items."""
    if value is None:
        value = 0
    for item in items:
        value += item.price * item.count
    if value < 0:
        raise ValueError("value must not be negative")
    return value
```'''
REPEAT_PROMPT = """Repeat this code exactly:
```python
class Cache:
    def __init__(self, size):
        self.size = size
        self.data = {}

    def get(self, key, default=None):
        return self.data.get(key, default)

    def set(self, key, value):
        if len(self.data) >= self.size:
            self.data.popitem()
        self.data[key] = value
```"""
# The README's figures are of these very words, "that flatten" and "that read" included.
PROMPTS = [
    "Write a Python function `flatten(items)` that flatten a nested list of lists into a single "
    "list.",
    "Write a Python function `read_json(path)` that read a JSON file and return the parsed object.",
    'Give me a JSON object with the fields name = "Ada", age = 36, city = "London", active = true, '
    'tags = ["python", "rust"].',
    RENAME_PROMPT,
    REPEAT_PROMPT,
]


class Case(NamedTuple):
    """One kind of speculation: a name and the server's options for it."""

    name: str
    options: list[str]


class Reply(NamedTuple):
    """What the server answered to one prompt, and what speculation did for it."""

    text: str
    drafted: int
    accepted: int
    tokens: int
    milliseconds: float


@dataclass(frozen=True)
class Server:
    """How llama-server is started and asked."""

    executable: str
    model: str
    port: int
    max_tokens: int

    def url(self, path: str) -> str:
        """Address of one of the server's endpoints."""
        return f"http://127.0.0.1:{self.port}{path}"

    def command(self, options: list[str]) -> list[str]:
        """Command line with one slot and two threads."""
        fixed = ["-c", "4096", "-np", "1", "-t", "2", "--jinja", "--no-warmup"]
        return [self.executable, "-m", self.model, "--port", str(self.port), *fixed, *options]

    @contextmanager
    def running(self, case: Case) -> Iterator[None]:
        """Start the server for a case, wait until it is ready, stop it afterwards."""
        log_path = Path(tempfile.gettempdir()) / f"acceptance-{case.name.replace(' ', '_')}.log"
        with log_path.open("w") as log:
            process = subprocess.Popen(self.command(case.options), stdout=log, stderr=log)
            try:
                self._wait_until_ready(process, log_path)
                yield
            finally:
                process.terminate()
                process.wait(STOP_SECONDS)

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]", log_path: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.5)
            if process.poll() is not None:
                raise RuntimeError(f"the server exited with {process.returncode}, see {log_path}")
            try:
                with urllib.request.urlopen(self.url("/health"), timeout=1):
                    return
            except (OSError, http.client.HTTPException):
                pass  # not listening yet, or still loading
        raise RuntimeError(f"the server was not ready after {START_SECONDS} s, see {log_path}")

    def ask(self, prompt: str) -> Reply:
        """Send one chat request and read its timings."""
        body = {
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
            "cache_prompt": False,
        }
        request = urllib.request.Request(
            self.url("/v1/chat/completions"),
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as response:
            answer: dict[str, Any] = json.load(response)
        timings = answer["timings"]
        return Reply(
            text=answer["choices"][0]["message"].get("content") or "",
            drafted=timings.get("draft_n", 0),
            accepted=timings.get("draft_n_accepted", 0),
            tokens=timings["predicted_n"],
            milliseconds=timings["predicted_ms"],
        )


def speculation_cases(draft_model: str | None) -> list[Case]:
    """Plain decoding first, then each kind of speculation."""
    cases = [
        Case("none", []),
        Case("draft-mtp n-max 1", ["--spec-type", "draft-mtp", "--spec-draft-n-max", "1"]),
        Case("draft-mtp n-max 3", ["--spec-type", "draft-mtp", "--spec-draft-n-max", "3"]),
    ]
    if draft_model:
        options = ["-md", draft_model, "--spec-type", "draft-simple", "--spec-draft-n-max", "3"]
        cases.append(Case("draft-simple n-max 3", options))
    bounds = ["--spec-ngram-mod-n-min", "4", "--spec-ngram-mod-n-max", "16"]
    cases.append(Case("ngram-simple", ["--spec-type", "ngram-simple"]))
    cases.append(Case("ngram-mod", ["--spec-type", "ngram-mod", *bounds]))
    return cases


def report(name: str, replies: list[Reply]) -> str:
    """One line with a case's acceptance and speed."""
    drafted = sum(reply.drafted for reply in replies)
    accepted = sum(reply.accepted for reply in replies)
    tokens = sum(reply.tokens for reply in replies)
    speed = tokens / sum(reply.milliseconds for reply in replies) * 1000
    rate = accepted / drafted if drafted else 0.0
    each = " ".join(f"{reply.accepted}/{reply.drafted}" for reply in replies)
    return (
        f"{name:34s} drafted {drafted:5d} accepted {accepted:5d} rate {rate:.3f}  "
        f"tokens {tokens} {speed:.1f} tok/s  per prompt {each}"
    )


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Draft acceptance of llama-server on five prompts at temperature 0. The "
        "server's logs go to the folder for temporary files."
    )
    parser.add_argument("server", help="llama-server executable")
    parser.add_argument("model", help="target GGUF file")
    parser.add_argument("draft", nargs="?", help="draft GGUF file, for draft-simple")
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=200,
        help="tokens generated for a prompt at most (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=18377, help="port for the server (default: %(default)s)"
    )
    return parser.parse_args()


def main() -> None:
    """Run all cases and compare their texts with plain decoding's."""
    arguments = parse_arguments()
    server = Server(arguments.server, arguments.model, arguments.port, arguments.max_tokens)
    plain: list[Reply] | None = None
    for case in speculation_cases(arguments.draft):
        try:
            with server.running(case):
                replies = [server.ask(prompt) for prompt in PROMPTS]
        except Exception as error:
            if plain is None:
                raise SystemExit(f"plain decoding failed: {error}") from None
            # a kind that this model can't do must not hide the others
            print(case.name, "FAILED", error)
            continue
        print(report(case.name, replies), flush=True)
        if plain is None:
            plain = replies
            for prompt, reply in zip(PROMPTS, replies, strict=True):
                print("----", prompt[:70].replace("\n", " "), "\n" + reply.text)
            continue
        same = sum(
            reply.text == expected.text for reply, expected in zip(replies, plain, strict=True)
        )
        print("   identical text to plain decoding on", same, "of", len(replies))


if __name__ == "__main__":
    main()
