#!/usr/bin/env python3
"""Train the tokenizer that target and draft share: a byte-level BPE of 8192 entries.

Here: Qwen3.5's pre-tokenizer split, the special tokens, the tokenizer's configuration.
Not here: the chat template (`chat_template.jinja`) and the sample (`build_corpus.py`).
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY_SIZE = 8192
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
]
PLAIN_TOKENS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]
CONFIGURATION = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "bos_token": None,
    "unk_token": None,
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 4096,
    "errors": "replace",
    "split_special_tokens": False,
}


def train_tokenizer(documents: list[str]) -> "Tokenizer":
    """A byte-level BPE learned from the documents, the added tokens at the end."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE(unk_token=None, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(SPECIAL_TOKENS) - len(PLAIN_TOKENS),
        min_frequency=2,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=24,
    )
    tokenizer.train_from_iterator(documents, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in PLAIN_TOKENS]
    )
    return tokenizer


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Train the 8192-entry byte-level BPE with Qwen3.5's pre-tokenizer split."
    )
    parser.add_argument("sample", type=Path, help="tok_sample.txt, written by build_corpus.py")
    parser.add_argument(
        "output", type=Path, help="folder for tokenizer.json and tokenizer_config.json"
    )
    return parser.parse_args()


def main() -> None:
    """Train, write the tokenizer's two files and show one encoding."""
    arguments = parse_arguments()
    output: Path = arguments.output
    tokenizer = train_tokenizer(arguments.sample.read_text(encoding="utf-8").split("\0"))
    if tokenizer.get_vocab_size() != VOCABULARY_SIZE:
        raise SystemExit(
            f"the tokenizer has {tokenizer.get_vocab_size()} entries instead of {VOCABULARY_SIZE}: "
            "the sample is too small, give build_corpus.py more packages"
        )
    output.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(output / "tokenizer.json"))
    (output / "tokenizer_config.json").write_text(json.dumps(CONFIGURATION, indent=1))

    text = "def f(x):\n    return x + 1234  # it's ok\n<|im_end|>"
    encoding = tokenizer.encode(text)
    same = tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
    print(encoding.tokens, "round trip:", "same" if same else "DIFFERENT")


if __name__ == "__main__":
    main()
