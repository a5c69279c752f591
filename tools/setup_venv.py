#!/usr/bin/env python3
"""Set up .venv with surefoot in it, and show how far that is. Needs nothing but Python.

usage: setup_venv.py [--dev] [--venv FOLDER]

llama-cpp-python comes as source and is compiled here, once: some five to fifteen minutes on a
small machine; pip keeps the result. CMAKE_ARGS picks the backend, for example
CMAKE_ARGS="-DGGML_CUDA=on"; the default is a portable CPU build.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PORTABLE = "-DGGML_NATIVE=OFF"
BUILD_STEP = re.compile(r"\[(\d+)/(\d+)\]")
QUIET_SECONDS = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Set up .venv with surefoot in it.")
    parser.add_argument("--dev", action="store_true", help="with what the tests need")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="folder (%(default)s)")
    options = parser.parse_args()
    require_python()
    stamp = options.venv / (".surefoot-dev" if options.dev else ".surefoot")
    wanted = fingerprint()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    python = create_venv(options.venv)
    install(python, "[dev]" if options.dev else "")
    for name in (".surefoot-dev", ".surefoot") if options.dev else (".surefoot",):
        (options.venv / name).write_text(wanted)


def require_python() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - this very check is for older ones
        found = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"setup: surefoot needs Python 3.11 or newer, and this is {found}")


def fingerprint() -> str:
    """What the environment depends on: the project file and the build options."""
    project = (ROOT / "pyproject.toml").read_bytes()
    options = os.environ.get("CMAKE_ARGS", PORTABLE)
    return hashlib.sha256(project + options.encode()).hexdigest()


def create_venv(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"setup: creating {folder.name}", flush=True)
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False)
        if made.returncode != 0:
            sys.exit("setup: could not make a virtual environment (Debian: install python3-venv)")
    return python


def install(python: Path, extra: str) -> None:
    environment = dict(os.environ)
    environment.setdefault("CMAKE_ARGS", PORTABLE)
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        print("setup: no C compiler found; if a build starts, install one (build-essential)")
    print("setup: installing; llama.cpp is compiled once, which takes some minutes")
    command = [str(python), "-m", "pip", "install", "-v", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "-e", f"{ROOT}{extra}"]
    process = subprocess.Popen(
        command,
        env=environment,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    tail = Progress().follow(process)
    if process.wait() != 0:
        print("".join(tail[-40:]))
        sys.exit("setup: installation failed; the end of its output is above")


class Progress:
    """One line that says what is being done and since when."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.shown = 0.0
        self.live = sys.stdout.isatty()

    def follow(self, process: subprocess.Popen[str]) -> list[str]:
        """Show a process's progress to its end; returns what it printed."""
        lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            self.show(describe(line))
        self.end()
        return lines

    def show(self, what: str) -> None:
        now = time.monotonic()
        if not what or now - self.shown < (0.2 if self.live else QUIET_SECONDS):
            return
        self.shown = now
        seconds = int(now - self.started)
        width = shutil.get_terminal_size().columns - 1
        text = f"setup: {seconds // 60}:{seconds % 60:02d}  {what}"[:width]
        print(f"\r\x1b[K{text}" if self.live else text, end="" if self.live else "\n", flush=True)

    def end(self) -> None:
        seconds = int(time.monotonic() - self.started)
        print(f"{chr(13) + chr(27) + '[K' if self.live else ''}setup: done in {seconds} s")


def describe(line: str) -> str:
    """The part of a line of pip's output that tells a person something."""
    line = line.strip()
    if step := BUILD_STEP.search(line):
        done, total = int(step[1]), int(step[2])
        return f"compiling llama.cpp: {100 * done // max(total, 1)}% ({done} of {total} steps)"
    for word in ("Collecting", "Downloading", "Building wheel", "Installing", "Successfully"):
        if line.startswith(word):
            return line
    return ""


if __name__ == "__main__":
    main()
