"""Models that can't be loaded: each says what was asked, what is wrong and what to do."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot import models
from surefoot.decoding import InvalidParameterError
from surefoot.runtime.base import ModelLoadError
from surefoot.runtime.libllama import LoadSettings, binding, load, need

DRAFT = models.DRAFT.read_bytes()


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What libllama is told to free."""
    calls: list[str] = []
    for name in ("llama_model_free", "llama_free"):
        real = getattr(binding, name)

        def free(handle: int, name: str = name, real: Any = real) -> None:
            calls.append(name)
            real(handle)

        monkeypatch.setattr(binding, name, free)
    return calls


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    with pytest.raises(ModelLoadError, match=r"none\.gguf: there is no such file\. Check the path"):
        load(LoadSettings(path))


def test_a_folder_is_answered_with_the_models_in_it() -> None:
    with pytest.raises(ModelLoadError, match=r"is a folder\..*tiny-35moe-mtp-Q8_0\.gguf, tiny-"):
        load(LoadSettings(models.TARGET.parent))


def test_a_folder_without_models_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"holds no \.gguf files"):
        load(LoadSettings(tmp_path))


def test_a_file_that_may_not_be_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelLoadError, match="Give the user read access"):
        load(LoadSettings(models.DRAFT))


CONTENTS = {
    "nothing": (b"", "is empty. Download it again"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "a web page": (b"<!DOCTYPE html><html></html>", "a web page"),
    "a PyTorch file": (b"PK\x03\x04" + bytes(60), "zip archive or PyTorch"),
    "something": (b"hello, world", "not a GGUF file"),
    "a header only": (DRAFT[:10], "cut short or damaged; download it again"),
    "half of the metadata": (DRAFT[:2000], "cut short or damaged; download it again"),
    "half of the weights": (DRAFT[: len(DRAFT) // 2], "cut short or damaged; download it again"),
    "an architecture from the future": (
        DRAFT.replace(b"qwen3", b"qwen9"),
        "unknown model architecture: 'qwen9'.*LLAMA_CPP_LIB_PATH",
    ),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_file_that_is_no_usable_model_says_what_it_is(tmp_path: Path, kind: str) -> None:
    content, text = CONTENTS[kind]
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=text) as error:
        load(LoadSettings(path))
    assert str(path) in str(error.value)


def test_a_context_too_large_for_memory_says_what_would_fit(
    monkeypatch: pytest.MonkeyPatch, freed: list[str]
) -> None:
    monkeypatch.setattr(need, "available_memory", lambda: 100_000_000)
    with pytest.raises(
        ModelLoadError, match=r"only 100,000,000 bytes.*at most \d+ tokens"
    ) as error:
        load(LoadSettings(models.DRAFT, context_length=100_000, threads=1))
    assert "100000 tokens" in str(error.value)
    assert freed.count("llama_model_free") == 2  # the model's own, and the dry run's
    fits = int(str(error.value).partition("at most ")[2].split()[0])
    assert 256 <= fits < 100_000
    load(LoadSettings(models.DRAFT, context_length=fits, threads=1)).close()


def test_a_context_that_nothing_can_make_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(need, "available_memory", lambda: 1000)
    with pytest.raises(ModelLoadError, match="smallest context doesn't fit"):
        load(LoadSettings(models.DRAFT, context_length=100_000, threads=1))


def test_more_tokens_than_libllama_can_count_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="smaller context"):
        load(LoadSettings(models.DRAFT, context_length=1 << 30, slots=2))


def test_the_model_is_freed_if_its_context_can_not_be_made(
    monkeypatch: pytest.MonkeyPatch, freed: list[str]
) -> None:
    monkeypatch.setattr(binding, "llama_init_from_model", lambda *_: None)
    with pytest.raises(ModelLoadError, match=r"can't make a context.*smaller context"):
        load(LoadSettings(models.DRAFT, threads=1))
    assert freed == ["llama_model_free"]


def test_everything_is_freed_if_the_first_pass_fails(
    monkeypatch: pytest.MonkeyPatch, freed: list[str]
) -> None:
    monkeypatch.setattr(binding, "llama_decode", lambda *_: -3)
    with pytest.raises(ModelLoadError, match=r"first pass failed.*computation failed"):
        load(LoadSettings(models.DRAFT, threads=1))
    assert freed == ["llama_free", "llama_model_free"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context_length", 5),
        ("context_length", -1),
        ("slots", 0),
        ("slots", 1000),
        ("longest_draft", -1),
        ("batch_size", 1),
        ("micro_batch_size", 1),
        ("threads", 0),
        ("snapshots", -1),
        ("snapshots", 100),
        ("logit_noise", -1),
    ],
)
def test_settings_out_of_range_are_named(name: str, value: int) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(InvalidParameterError, match=name):
        LoadSettings(models.DRAFT, **settings)


@pytest.mark.parametrize(("asked", "given"), [(None, 4096), (0, 4096), (300, 300)])
def test_the_context_is_the_models_unless_asked_for(asked: int | None, given: int) -> None:
    with load(LoadSettings(models.DRAFT, context_length=asked, threads=1)) as runtime:
        assert runtime.context_length == given


def test_nothing_is_printed_by_a_load_or_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(DRAFT[: len(DRAFT) // 2])
    program = f"""
from surefoot.runtime.base import ModelLoadError
from surefoot.runtime.libllama import LoadSettings, load
load(LoadSettings({str(models.DRAFT)!r}, context_length=64, threads=1)).close()
try:
    load(LoadSettings({str(path)!r}))
except ModelLoadError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("refused\n", "")
