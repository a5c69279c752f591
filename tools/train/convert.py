#!/usr/bin/env python3
"""Write Hugging Face folders from the trained weights and convert them to f16 GGUF files.

Here: the models' configurations as transformers reads them, GGUF metadata, the call of llama.cpp's
own converter. Not here: quantizing, which is llama.cpp's `llama-quantize`.
"""

import argparse
import importlib
import json
import multiprocessing
import runpy
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = Path(__file__).resolve().parent / "chat_template.jinja"
PRE_TOKENIZER = "qwen35"
ORIGIN = (
    "Trained from scratch by the surefoot project on permissively licensed Python source and "
    "documentation."
)


@dataclass(frozen=True)
class Job:
    """One model to convert: `name` is the file's, `title` the one in the GGUF metadata."""

    name: str
    title: str
    description: str
    weights: Path
    config: dict[str, Any]

    def metadata(self) -> dict[str, str]:
        """GGUF metadata that llama.cpp's converter would leave out or guess."""
        return {
            "general.name": self.title,
            "general.author": "surefoot",
            "general.organization": "surefoot",
            "general.license": "apache-2.0",
            "general.description": f"{self.description} {ORIGIN}",
            "general.version": "1",
        }


def common_config(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """What both models' config.json says."""
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    return {
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "bos_token_id": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "use_cache": True,
        "torch_dtype": "float32",
    }


def target_config(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """config.json of the target."""
    from model import FULL_ATTENTION_INTERVAL, TARGET, is_full_attention

    config = asdict(TARGET)
    rope_parameters = {
        "rope_type": "default",
        "rope_theta": config.pop("rope_theta"),
        "partial_rotary_factor": config.pop("partial_rotary_factor"),
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    }
    layer_types = [
        "full_attention" if is_full_attention(layer) else "linear_attention"
        for layer in range(TARGET.num_hidden_layers)
    ]
    return {
        **config,
        **common_config(tokenizer),
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "rope_parameters": rope_parameters,
        "full_attention_interval": FULL_ATTENTION_INTERVAL,
        "attn_output_gate": True,
        "layer_types": layer_types,
        "mtp_num_hidden_layers": 1,
        "router_aux_loss_coef": 0.01,
    }


def draft_config(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """config.json of the draft."""
    from model import DRAFT

    return {
        **asdict(DRAFT),
        **common_config(tokenizer),
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "rope_parameters": {"rope_type": "default", "rope_theta": DRAFT.rope_theta},
    }


def write_checkpoint_folder(job: Job, tokenizer_folder: Path, folder: Path) -> None:
    """A folder that transformers and llama.cpp's converter can load."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(job.config, indent=1))
    generation = {key: job.config[key] for key in ("eos_token_id", "pad_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer_folder / name, folder)
    shutil.copy(CHAT_TEMPLATE, folder)
    shutil.copy(job.weights, folder / "model.safetensors")


def patch_converter(metadata: dict[str, str]) -> None:
    """Give llama.cpp's converter the pre-tokenizer's name and the metadata.

    The converter knows a pre-tokenizer by a hash of what a published tokenizer does; this
    vocabulary is our own, so the hash is unknown to it.
    """
    import gguf

    base = importlib.import_module("conversion.base")  # a module of the llama.cpp folder

    def pre_tokenizer(_self: Any, _tokenizer: Any) -> str:
        return PRE_TOKENIZER

    def no_sentencepiece(*_arguments: Any, **_options: Any) -> None:
        # Qwen's set_vocab tries sentencepiece first and goes on to BPE on this error
        raise FileNotFoundError

    base.TextModel.get_vocab_base_pre = pre_tokenizer
    base.TextModel._set_vocab_sentencepiece = no_sentencepiece

    original_add = gguf.GGUFWriter.add_key_value
    original_write_header = gguf.GGUFWriter.write_header_to_file

    def add_key_value(
        self: Any, key: str, value: Any, kind: Any, *arguments: Any, **options: Any
    ) -> None:
        original_add(self, key, metadata.get(key, value), kind, *arguments, **options)

    def write_header_to_file(self: Any, *arguments: Any, **options: Any) -> None:
        written = {key for shard in self.kv_data for key in shard}
        for key, value in metadata.items():
            if key not in written:
                self.add_string(key, value)
        original_write_header(self, *arguments, **options)

    gguf.GGUFWriter.add_key_value = add_key_value
    gguf.GGUFWriter.write_header_to_file = write_header_to_file


def run_converter(llama_cpp: Path, metadata: dict[str, str], folder: Path, gguf: Path) -> None:
    """Run the patched converter; wants a process of its own."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    patch_converter(metadata)
    script = str(llama_cpp / "convert_hf_to_gguf.py")
    sys.argv = [script, str(folder), "--outfile", str(gguf), "--outtype", "f16"]
    runpy.run_path(script, run_name="__main__")


def convert(job: Job, llama_cpp: Path, folder: Path, gguf: Path) -> None:
    """Convert a checkpoint folder in a fresh process."""
    process = multiprocessing.get_context("spawn").Process(
        target=run_converter, args=(llama_cpp, job.metadata(), folder, gguf)
    )
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"llama.cpp's converter failed on {folder}; its messages are above")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Convert target.safetensors and draft.safetensors, those that are there, to "
        "tiny-35moe-mtp-f16.gguf and tiny-draft-f16.gguf."
    )
    add = parser.add_argument
    add("--llama-cpp", type=Path, required=True, help="a llama.cpp source folder")
    add("--tokenizer", type=Path, required=True, help="folder written by make_tokenizer.py")
    add("--weights", type=Path, required=True, help="folder written by train.py")
    add("--work", type=Path, required=True, help="folder for the Hugging Face folders")
    add("--out", type=Path, required=True, help="folder for the GGUF files")
    return parser.parse_args()


def main() -> None:
    """Convert the models whose weights are there."""
    arguments = parse_arguments()
    tokenizer = json.loads((arguments.tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    jobs = [
        Job(
            name="tiny-35moe-mtp",
            title="surefoot-tiny-35moe",
            description="Tiny hybrid (gated delta net + attention) mixture-of-experts model with "
            "one MTP head.",
            weights=arguments.weights / "target.safetensors",
            config=target_config(tokenizer),
        ),
        Job(
            name="tiny-draft",
            title="surefoot-tiny-draft",
            description="Tiny dense draft model for surefoot-tiny-35moe.",
            weights=arguments.weights / "draft.safetensors",
            config=draft_config(tokenizer),
        ),
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        if not job.weights.exists():
            print("no weights for", job.name)
            continue
        folder = arguments.work / job.name
        write_checkpoint_folder(job, arguments.tokenizer, folder)
        convert(job, arguments.llama_cpp.resolve(), folder, arguments.out / f"{job.name}-f16.gguf")


if __name__ == "__main__":
    main()
