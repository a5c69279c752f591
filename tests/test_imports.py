"""Imports run one way, as DESIGN says: cli, server, engine, then drafting, runtime, constraints and
chat side by side, then decoding.

Every import statement counts, those in functions and under TYPE_CHECKING as well.
"""

import ast
from pathlib import Path

import pytest

import surefoot

SOURCE = Path(surefoot.__file__).parent

FOUNDATIONS = {"decoding"}
PARTS = {"drafting", "runtime", "constraints", "chat", "models"}
ENGINE = {"engine"} | PARTS | FOUNDATIONS

MAY_IMPORT: dict[str, set[str]] = {
    "decoding": set(),
    "models": set(),
    **dict.fromkeys(["drafting", "runtime", "constraints", "chat"], FOUNDATIONS),
    "engine": PARTS | FOUNDATIONS,
    "bench": ENGINE,
    "worker": ENGINE,
    "ui": ENGINE,
    "server": ENGINE | {"ui"},
    "commands": ENGINE | {"ui", "bench", "server", "worker"},
    "cli": ENGINE | {"ui", "bench", "server", "commands", "worker"},
    "__main__": {"cli"},
}
"""For each folder (or module) right below `surefoot` the others that it may import. `models` is a
folder of files with their paths; `commands` is what `cli` consists of. The root itself holds the
version and imports nothing."""


def part_of(path: Path) -> str:
    """The folder or module right below `surefoot`; empty for the root's own `__init__`."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imported(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and full name of everything that a module imports, names taken from a module too."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are written in full here"
            names += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return names


def wrong_imports(part: str, source: str) -> list[str]:
    """The imports in a module's source that run the wrong way."""
    wrong = []
    for line, name in imported(ast.parse(source)):
        package, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        # From the root itself only names like __version__ can come; folders are in the table.
        if package != "surefoot" or target == part or (rest and target.startswith("__")):
            continue
        if target not in MAY_IMPORT.get(part, set()):
            wrong.append(f"line {line}: {part or 'the root'} imports {name}")
    return wrong


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_imports_run_one_way(path: Path) -> None:
    part = part_of(path)
    assert part == "" or part in MAY_IMPORT, f"{part} needs a line in MAY_IMPORT"
    assert wrong_imports(part, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("decoding", "from surefoot.runtime.base import Runtime"),
        ("decoding", "import surefoot.runtime.base"),
        ("decoding", "from surefoot import runtime"),
        ("decoding", "import surefoot"),
        ("drafting", "from surefoot.engine import Engine"),
        ("drafting", "if TYPE_CHECKING:\n    from surefoot.server import app"),
        ("runtime", "def f():\n    import surefoot.cli"),
        ("engine", "from surefoot.server.app import create"),
        ("server", "from surefoot.cli import main"),
        ("", "from surefoot.engine import Engine"),
    ],
)
def test_an_import_the_wrong_way_is_found(part: str, source: str) -> None:
    assert len(wrong_imports(part, source)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("decoding", "from surefoot.decoding.target import Feed\nimport numpy as np"),
        (
            "engine",
            "from surefoot.decoding import Round\nfrom surefoot.runtime.base import Runtime",
        ),
        ("server", "from surefoot import __version__"),
        ("cli", "from surefoot.commands import run"),
    ],
)
def test_imports_the_right_way_are_left_alone(part: str, source: str) -> None:
    assert wrong_imports(part, source) == []
