"""Options that go on to libllama: they arrive there, and what makes no sense is an error."""

from pathlib import Path
from typing import Any

import pytest

from surefoot.runtime.libllama import LoadSettings, binding
from tests.commands.conftest import Command

ARRIVING = {
    "-ctk q8_0": ("context", "type_k", binding.CACHE_TYPES["q8_0"]),
    "--cache-type-v bf16": ("context", "type_v", 30),
    "-fa off": ("context", "flash_attn_type", 0),
    "--flash-attn on": ("context", "flash_attn_type", 1),
    "-fa auto": ("context", "flash_attn_type", -1),
    "-tb 2": ("context", "n_threads_batch", 2),
    "-t 1": ("context", "n_threads_batch", 1),
    "-ub 64": ("context", "n_ubatch", 64),
    "-b 96": ("context", "n_batch", 96),
    "-lm dio": ("model", "load_mode", 4),
    "--mlock": ("model", "load_mode", 3),
    "--no-mmap": ("model", "load_mode", 0),
    "--mmap": ("model", "load_mode", 1),
    "--mlock --no-mmap": ("model", "load_mode", 2),
    "-t 1 -s 3": ("model", "load_mode", -1),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, binding.Structure]:
    """What libllama is asked for, last: a model and a context."""
    given: dict[str, binding.Structure] = {}
    make_model = binding.llama_model_load_from_file
    make_context = binding.llama_init_from_model

    def load(path: bytes, parameters: binding.Structure) -> int | None:
        given["model"] = parameters
        return make_model(path, parameters)

    def init(handle: int, parameters: binding.Structure) -> int | None:
        given["context"] = parameters
        return make_context(handle, parameters)

    monkeypatch.setattr(binding, "llama_model_load_from_file", load)
    monkeypatch.setattr(binding, "llama_init_from_model", init)
    return given


@pytest.mark.parametrize("line", ARRIVING)
def test_an_option_arrives_at_libllama(
    surefoot: Command, asked: dict[str, binding.Structure], line: str
) -> None:
    kind, field, value = ARRIVING[line]
    ended = surefoot.run("-n", "2", "--spec-type", "none", "-c", "256", *line.split(), "hi")
    assert ended.code == 0, ended.err
    assert getattr(asked[kind], field) == value


def test_quantized_keys_and_values_still_draft_and_roll_back(surefoot: Command) -> None:
    ended = surefoot.run("-n", "30", "-ctk", "q8_0", "-ctv", "q8_0", "-s", "1", "hi")
    assert ended.code == 0
    assert "by fork" in ended.err


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-ctk q1_1", "argument -ctk/--cache-type-k: invalid choice: 'q1_1'"),
        ("-fa maybe", "argument -fa/--flash-attn: invalid choice: 'maybe'"),
        ("-fa off -ctv q8_0", "--cache-type-v: q8_0 needs flash attention, and that is off"),
        ("-tb 0", "--threads-batch: must lie between 1 and"),
        ("-lm mmap --mlock", "--load-mode: says it all; leave out --mlock and --mmap"),
        ("-lm none --mmap", "--load-mode: says it all"),
    ],
)
def test_what_makes_no_sense_is_an_error_in_words(
    surefoot: Command, line: str, problem: str
) -> None:
    ended = surefoot.run(*line.split(), "hi")
    assert ended.code == 2
    assert ended.problem.startswith(problem)


@pytest.mark.parametrize("field", ["cache_type_k", "cache_type_v", "flash_attention", "load_mode"])
def test_a_library_user_gets_the_same_refusal(field: str) -> None:
    bogus: dict[str, Any] = {field: "bogus"}
    with pytest.raises(ValueError, match=f"{field}: must be one of "):
        LoadSettings("any.gguf", **bogus)


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}def "


def test_a_chat_template_stands_in_for_the_files(surefoot: Command, tmp_path: Path) -> None:
    path = tmp_path / "template.jinja"
    path.write_text(TEMPLATE, encoding="utf-8")
    same = ["--temp", "0", "-n", "8", "--json", "-c", "512"]
    plain, given, from_file, chatml, raw = (
        surefoot.run(*same, *arguments).out
        for arguments in (
            ["hi"],
            ["--chat-template", TEMPLATE, "hi"],
            ["--chat-template-file", str(path), "hi"],
            ["--chat-template", "chatml", "hi"],
            ["--raw", "<user>hidef "],
        )
    )

    def told(out: str) -> list[str]:
        return [part for part in out.split(",") if '"text"' in part or '"prompt_tokens"' in part]

    assert told(given) == told(from_file) == told(raw) != told(plain)
    assert told(chatml)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--chat-template", "llama2"], "--chat-template: there is none called 'llama2'"),
        (["--chat-template", "{{"], "--chat-template: is no valid Jinja2: line 1"),
        (["--chat-template-file", "no"], "--chat-template-file: no can't be read: No such file"),
        (["--chat-template-file", "bad"], "--chat-template-file: is no valid Jinja2"),
        (["-jf", "no"], "--json-schema-file: no can't be read: No such file"),
        (["--grammar-file", "no"], "--grammar-file: no can't be read: No such file"),
    ],
)
def test_a_template_or_form_that_is_none_is_an_error_in_words(
    surefoot: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad").write_text("{% if %}", encoding="utf-8")
    ended = surefoot.run(*arguments, "hi")
    assert ended.code == 2
    assert ended.problem.startswith(problem)


def test_a_json_schema_can_come_from_a_file(surefoot: Command, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"enum": ["yes"]}', encoding="utf-8")
    assert surefoot.run("-n", "8", "-jf", str(path), "hi").out == '"yes"\n'
