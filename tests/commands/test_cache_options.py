"""The prompt cache's options, as the command line reads them."""

from pathlib import Path

import pytest

from surefoot.cli import main, parser
from surefoot.commands.cache_options import cache_line, cache_settings
from surefoot.engine.cache import CacheSettings


def test_sizes_and_the_folder_are_read(tmp_path: Path) -> None:
    sizes = ["--cache-device", "1G", "--cache-ram", "0", "--cache-disk", "1.5G"]
    arguments = ["serve", *sizes, "--cache-folder", str(tmp_path), "--checkpoint-every", "256"]
    settings = cache_settings(parser().parse_args(arguments))
    assert settings == CacheSettings(1 << 30, 0, 3 << 29, tmp_path, 256)


def test_other_commands_have_no_cache() -> None:
    assert cache_settings(parser().parse_args(["run", "hello"])) == CacheSettings()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--cache-ram", "lots"], "'lots' is no size; write one like 512M or 2G"),
        (["--cache-ram", "8192"], "8192 is too small for a state; 8192M are MiB"),
        (["--cache-disk", "1G"], "--cache-folder"),
        (["--checkpoint-every", "2"], "--checkpoint-every"),
    ],
)
def test_mistakes_are_said_in_words(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["serve", *arguments])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    assert code == 2
    assert complaint in capsys.readouterr().err


def test_the_line_at_start_tells_sizes() -> None:
    settings = CacheSettings(512 << 20, 2 << 30)
    line = cache_line({"most_forks": 32, "disk_problem": None}, settings)
    assert line == "512 MiB on the device (at most 32 forks), 2 GiB of memory"
