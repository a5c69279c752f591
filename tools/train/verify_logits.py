#!/usr/bin/env python3
"""Compare llama.cpp's logits with transformers' in float32 on held-out documents.

Here: tokenisation, Kullback-Leibler divergence, top-1 agreement and loss of one GGUF file.
Not here: how well speculation works with it (`acceptance.py`).
"""

import argparse
import lzma
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

CONTEXT_TOKENS = 1024
MAX_DOCUMENT_TOKENS = 700
DOCUMENT_COUNT = 6


class LlamaModel:
    """A GGUF model on the CPU, through llama-cpp-python's ctypes layer."""

    def __init__(self, path: Path, threads: int) -> None:
        import llama_cpp

        self.library = llama_cpp
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise SystemExit(f"llama.cpp can't load {path}")
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.context_parameters = llama_cpp.llama_context_default_params()
        self.context_parameters.n_ctx = CONTEXT_TOKENS
        self.context_parameters.n_batch = CONTEXT_TOKENS
        self.context_parameters.n_ubatch = CONTEXT_TOKENS // 2
        self.context_parameters.n_threads = threads
        self.context_parameters.n_threads_batch = threads

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, special tokens parsed and none added."""
        encoded = text.encode()
        tokens = (self.library.llama_token * (len(encoded) + 8))()
        count = self.library.llama_tokenize(
            self.vocabulary, encoded, len(encoded), tokens, len(tokens), False, True
        )
        return list(tokens[:count])

    def logits(self, ids: list[int]) -> "np.ndarray[Any, Any]":
        """Logits after each token, [tokens, vocabulary], from one pass in a fresh context."""
        import numpy as np

        library = self.library
        vocabulary_size = library.llama_vocab_n_tokens(self.vocabulary)
        context = library.llama_init_from_model(self.model, self.context_parameters)
        batch = library.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for position, token in enumerate(ids):
            batch.token[position] = token
            batch.pos[position] = position
            batch.n_seq_id[position] = 1
            batch.seq_id[position][0] = 0
            batch.logits[position] = 1
        code = library.llama_decode(context, batch)
        if code != 0:
            raise SystemExit(f"llama_decode failed with code {code} on {len(ids)} tokens")
        rows = [
            np.ctypeslib.as_array(
                library.llama_get_logits_ith(context, position), (vocabulary_size,)
            ).copy()
            for position in range(len(ids))
        ]
        library.llama_batch_free(batch)
        library.llama_free(context)
        return np.stack(rows)


@dataclass
class Comparison:
    """What has been measured so far, one tensor for each document."""

    divergence: "list[Tensor]" = field(default_factory=list)
    agreement: "list[Tensor]" = field(default_factory=list)
    llama_loss: "list[Tensor]" = field(default_factory=list)
    transformers_loss: "list[Tensor]" = field(default_factory=list)

    def add(self, ids: list[int], llama_logits: "Tensor", transformers_logits: "Tensor") -> None:
        """Measure a document from both logits, [tokens, vocabulary]."""
        import torch

        llama = llama_logits.double().log_softmax(-1)
        transformers = transformers_logits.double().log_softmax(-1)
        self.divergence.append((transformers.exp() * (transformers - llama)).sum(-1))
        self.agreement.append((transformers.argmax(-1) == llama.argmax(-1)).double())
        following = torch.tensor(ids[1:])[:, None]
        self.llama_loss.append(-llama[:-1].gather(1, following))
        self.transformers_loss.append(-transformers[:-1].gather(1, following))

    def summary(self) -> str:
        """The figures over all documents."""
        import torch

        divergence = torch.cat(self.divergence)
        agreement = torch.cat(self.agreement).mean().item()
        llama_loss = torch.cat(self.llama_loss).mean().item()
        transformers_loss = torch.cat(self.transformers_loss).mean().item()
        return (
            f"tokens {len(divergence)} mean KL {divergence.mean().item():.3e} "
            f"max KL {divergence.max().item():.3e} top-1 agreement {agreement:.4f} "
            f"loss llama.cpp {llama_loss:.4f} transformers {transformers_loss:.4f}"
        )


def held_out_documents(part: Path) -> list[str]:
    """The first held-out documents of a corpus part."""
    documents = lzma.decompress(part.read_bytes()).decode("utf-8").split("\0")
    held_out = [document[1:] for document in documents if document[:1] in ("p", "t")]
    if not held_out:
        raise SystemExit(f"{part} has no held-out document; give another part")
    return held_out[:DOCUMENT_COUNT]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Compare llama.cpp's logits with transformers' on held-out documents."
    )
    parser.add_argument(
        "checkpoint", type=Path, help="Hugging Face folder, written by convert.py in its --work"
    )
    parser.add_argument("gguf", type=Path, help="GGUF file to check")
    parser.add_argument("part", type=Path, help="part file, written by build_corpus.py")
    parser.add_argument(
        "--threads", type=int, default=2, help="threads for llama.cpp (default: %(default)s)"
    )
    return parser.parse_args()


def main() -> None:
    """Compare tokenisation, then logits, and print the figures."""
    arguments = parse_arguments()
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    documents = held_out_documents(arguments.part)
    tokenizer = Tokenizer.from_file(str(arguments.checkpoint / "tokenizer.json"))
    llama = LlamaModel(arguments.gguf, arguments.threads)
    encodings = [tokenizer.encode(document).ids for document in documents]
    same = sum(
        llama.tokenize(document) == ids for document, ids in zip(documents, encodings, strict=True)
    )
    print("tokenisation identical on", same, "of", len(documents), "held-out documents")

    reference = AutoModelForCausalLM.from_pretrained(
        arguments.checkpoint, dtype=torch.float32
    ).eval()
    comparison = Comparison()
    for encoding in encodings:
        ids = encoding[:MAX_DOCUMENT_TOKENS]
        with torch.no_grad():
            expected = reference(torch.tensor([ids])).logits[0]
        comparison.add(ids, torch.from_numpy(llama.logits(ids)), expected)
    print(arguments.gguf.name, comparison.summary())


if __name__ == "__main__":
    main()
