"""Fixtures that several folders of tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_cpp import _utils

from surefoot import models
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load

FAMILY_FILES = Path(__file__).parent / ".models"
"""Random-weight files are drawn once into this folder, which git ignores."""


def pytest_unconfigure() -> None:
    """Close what llama-cpp-python leaves open, lest Python complain behind pytest's last line."""
    for file in (_utils.outnull_file, _utils.errnull_file):
        file.close()


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What is measured and kept stays out of the user's own cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def trained() -> Iterator[LibllamaRuntime]:
    """The embedded hybrid with one slot; one thread is quickest at small widths."""
    runtime = load(LoadSettings(path=models.TARGET, slots=1, context_length=2048, threads=1))
    yield runtime
    runtime.close()
