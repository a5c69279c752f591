#!/usr/bin/env python3
"""Train the target and then the draft on one GPU, each within a budget of seconds.

Here: training windows, schedule, training loop, evaluation, checkpoints.
Not here: the models and their losses (`model.py`) and the token arrays (`data.py`).
"""

import argparse
import json
import math
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

STARTED = time.time()  # before the slow imports: deadlines count them

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    TokenArray = np.ndarray[Any, np.dtype[np.uint16]]

    from model import Draft, Target

STREAMS = ("raw", "chat", "raw_eval", "chat_eval")
PART_NAMES = {
    "target": ("loss", "mtp1_loss", "mtp2_loss", "aux", "acc", "mtp1_acc", "mtp2_acc"),
    "draft": ("loss", "acc"),
}
LOOKAHEAD = 3  # tokens behind a window that the target's losses ask for
DRAFT_SEQUENCE_LENGTH = 1024
RAW_SHARE = 0.55
WEIGHT_DECAY = 0.1
COMPILING_STEPS = 3  # the clock of a run starts behind them
SAVE_EVERY_SECONDS = 150
MAX_SELFTEST_ERROR = 0.03
SMALL_TENSOR = 8192  # a tensor with fewer numbers is stored in float32


def log(*values: object) -> None:
    """Print with the seconds since the script started."""
    print(f"[{time.time() - STARTED:7.1f}]", *values, flush=True)


@dataclass(frozen=True)
class Plan:
    """How one model is trained.

    `seconds` is the training time without compiling; `deadline` cuts it and counts from the
    script's start. The run covers the cosine from `cosine_start` to `cosine_end`, in [0, 1].
    """

    kind: str
    seconds: float
    deadline: float
    learning_rate: float
    smoke: bool
    init: Path | None = None
    cosine_start: float = 0.0
    cosine_end: float = 1.0

    @property
    def warmup_steps(self) -> int:
        """Steps over which the rate rises; fewer for a run that goes on from a checkpoint."""
        return 60 if self.init else 300

    def progress(self, elapsed: float, seconds: float) -> float:
        """Where on the cosine a run of so many seconds is."""
        done = min(1.0, elapsed / seconds)
        return self.cosine_start + (self.cosine_end - self.cosine_start) * done

    def rate(self, step: int, progress: float) -> float:
        """Learning rate of a step (from 0): warm-up times cosine, down to 3 % of the peak."""
        warmup = min(1.0, (step + 1) / self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * progress)) * 0.97 + 0.03
        return self.learning_rate * warmup * cosine


class Feeder:
    """Random windows of both streams, as batches of `rows` windows of `window` tokens."""

    def __init__(
        self,
        streams: "dict[str, TokenArray]",
        window: int,
        rows: int,
        seed: int,
        device: str = "cuda",
    ) -> None:
        import torch

        self.streams = {
            # ids below 8192 fit int16
            name: torch.from_numpy(tokens.astype("int16")).to(device)
            for name, tokens in streams.items()
        }
        self.window = window
        self.rows = rows
        self.device = device
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.offsets = torch.arange(window, device=device)

    @property
    def tokens_per_batch(self) -> int:
        """Predicted tokens in a batch."""
        return self.rows * (self.window - LOOKAHEAD)

    def batch(self) -> "Tensor":
        """A batch, [rows, window]: 55 % of the rows raw, the rest chat, in random order."""
        import torch

        raw_rows = int(self.rows * RAW_SHARE)
        windows = torch.cat(
            (self._windows("raw", raw_rows), self._windows("chat", self.rows - raw_rows))
        )
        # shuffled, because the second MTP step sees only the first half of the rows
        order = torch.randperm(self.rows, generator=self.generator, device=self.device)
        return windows[order]

    def evaluation_windows(self, stream: str, count: int) -> "Tensor":
        """At most so many windows from the head of a stream's held-out documents."""
        tokens = self.streams[stream + "_eval"]
        count = min(count, (len(tokens) - 1) // self.window)
        return tokens[: count * self.window].view(count, self.window).long()

    def _windows(self, stream: str, count: int) -> "Tensor":
        import torch

        tokens = self.streams[stream]
        starts = torch.randint(
            0,
            len(tokens) - self.window,
            (count,),
            generator=self.generator,
            device=self.device,
        )
        return tokens[starts[:, None] + self.offsets].long()


def parameter_groups(model: "Target | Draft") -> list[dict[str, Any]]:
    """AdamW's groups: matrices with weight decay; norms, convolutions and gates without."""
    decayed, plain = [], []
    for name, parameter in model.named().items():
        is_matrix = parameter.ndim >= 2
        if is_matrix and "conv1d" not in name and "shared_expert_gate" not in name:
            decayed.append(parameter)
        else:
            plain.append(parameter)
    return [
        {"params": decayed, "weight_decay": WEIGHT_DECAY},
        {"params": plain, "weight_decay": 0.0},
    ]


def evaluate(model: "Target | Draft", feeder: Feeder, kind: str) -> dict[str, dict[str, float]]:
    """Losses and accuracies on the held-out windows of each stream, at most six batches each."""
    import torch

    model.eval()
    results = {}
    with torch.no_grad():
        for stream in ("raw", "chat"):
            windows = feeder.evaluation_windows(stream, 6 * feeder.rows)
            batches = [
                windows[start : start + feeder.rows]
                for start in range(0, len(windows) - feeder.rows + 1, feeder.rows)
            ]
            if not batches:
                continue
            total = sum(model(batch)[1] for batch in batches)
            means = (total / len(batches)).tolist()
            results[stream] = {
                name: round(mean, 4) for name, mean in zip(PART_NAMES[kind], means, strict=True)
            }
            results[stream]["ppl"] = round(math.exp(means[0]), 3)
            results[stream]["tokens"] = len(batches) * feeder.tokens_per_batch
    model.train()
    return results


def save_weights(model: "Target | Draft", path: Path) -> None:
    """Write a checkpoint, small tensors in float32 and the others in float16."""
    from safetensors.torch import save_file

    tensors = {}
    for name, parameter in model.named().items():
        tensor = parameter.detach().float().cpu().contiguous()
        tensors[name] = tensor if tensor.numel() < SMALL_TENSOR else tensor.half()
    unfinished = path.with_suffix(".part")
    save_file(tensors, unfinished, metadata={"format": "pt"})
    unfinished.replace(path)


def pack(source: Path, destination: Path, step: float = 0.12) -> None:
    """Make a small, coarse copy of a checkpoint that `--init` accepts.

    Each row becomes int8 numbers in steps of `step` times its root mean square (wider where int8
    would not reach), and all of it is Huffman coded.
    """
    import torch
    from safetensors.torch import load_file, save

    packed = {}
    for name, stored in load_file(source).items():
        tensor = stored.float()
        if tensor.numel() < SMALL_TENSOR or "conv1d" in name:
            packed[name] = tensor
            continue
        scale = tensor.pow(2).mean(-1, keepdim=True).sqrt() * step
        reach = tensor.abs().amax(-1, keepdim=True) / 127
        scale = torch.maximum(scale, reach).clamp_min(1e-8)
        packed[name + "|q"] = (tensor / scale).round().to(torch.int8)
        packed[name + "|s"] = scale.half()
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    destination.write_bytes(compressor.compress(save(packed)) + compressor.flush())


def load_weights(path: Path) -> "dict[str, Tensor]":
    """The float32 tensors of a checkpoint, or of a copy that `pack` made."""
    from safetensors.torch import load, load_file

    if path.suffix == ".safetensors":
        return {name: tensor.float() for name, tensor in load_file(path).items()}
    packed = load(zlib.decompress(path.read_bytes(), -15))
    tensors = {}
    for name, tensor in packed.items():
        if name.endswith("|q"):
            scale = packed[name.removesuffix("|q") + "|s"]
            tensors[name.removesuffix("|q")] = tensor.float() * scale.float()
        elif not name.endswith("|s"):
            tensors[name] = tensor
    return tensors


def build_model(plan: Plan) -> "Target | Draft":
    """The plan's model on the GPU, with random or the given weights."""
    import model

    built: Target | Draft = model.Target() if plan.kind == "target" else model.Draft()
    built.cuda()
    if plan.init:
        built.load_named(load_weights(plan.init))
    return built


def train_step(
    model: "Target | Draft",
    optimizer: "torch.optim.Optimizer",
    batch: "Tensor",
    learning_rate: float,
) -> "tuple[Tensor, Tensor]":
    """One step of the optimiser; returns the parts of the loss and the gradient's norm."""
    import torch

    parameters = list(model.parameters())
    loss, parts = model(batch)
    loss.backward()
    gradient_norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    for parameter in parameters:
        # a norm that isn't finite makes every gradient NaN: such a step then only decays
        if parameter.grad is not None:
            parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return parts, gradient_norm


def train(plan: Plan, feeder: Feeder, output: Path) -> None:
    """Train one model; writes KIND.safetensors and, with its figures, KIND.json."""
    import torch

    torch.manual_seed(5)
    model = build_model(plan)
    parameter_count = sum(parameter.numel() for parameter in model.parameters())
    log(plan.kind, "parameters", parameter_count)
    optimizer = torch.optim.AdamW(
        parameter_groups(model), lr=plan.learning_rate, betas=(0.9, 0.95), eps=1e-8, fused=True
    )
    checkpoint = output / f"{plan.kind}.safetensors"
    log_every = 10 if plan.smoke else 100
    seconds = plan.seconds
    loop_entered = last_save = time.time()
    clock_start: float | None = None
    step = 0
    while True:
        elapsed = 0.0 if clock_start is None else time.time() - clock_start
        progress = plan.progress(elapsed, seconds)
        learning_rate = plan.rate(step, progress)
        parts, gradient_norm = train_step(model, optimizer, feeder.batch(), learning_rate)
        step += 1

        if step == COMPILING_STEPS:
            torch.cuda.synchronize()
            compiling = round(time.time() - loop_entered, 1)
            memory = torch.cuda.max_memory_allocated() >> 20
            log("compiled", compiling, "s; memory", memory, "MiB")
            clock_start = time.time()
            seconds = min(seconds, plan.deadline - (clock_start - STARTED))
            log("budget", round(seconds, 1))
        if step % log_every == 0:
            losses = [round(part, 3) for part in parts.tolist()]
            now = time.time()
            speed = 0.0
            if clock_start is not None and step > COMPILING_STEPS:
                timed_steps = step - COMPILING_STEPS
                speed = timed_steps * feeder.tokens_per_batch / (now - clock_start)
            log(
                f"{plan.kind} step {step} progress {progress:.3f} rate {learning_rate:.2e} "
                f"gradient {gradient_norm.item():.3f} parts {losses} tokens/s {speed:.0f}"
            )
            if plan.kind == "target" and not plan.smoke and now - last_save > SAVE_EVERY_SECONDS:
                save_weights(model, checkpoint)
                last_save = now
        if clock_start is not None and time.time() - clock_start > seconds:
            break

    torch.cuda.synchronize()
    evaluation = evaluate(model, feeder, plan.kind)
    tokens = step * feeder.tokens_per_batch
    log(plan.kind, "done steps", step, "tokens", tokens, "eval", json.dumps(evaluation))
    save_weights(model, checkpoint)
    figures = {
        "kind": plan.kind,
        "parameters": parameter_count,
        "steps": step,
        "tokens": tokens,
        "lr": plan.learning_rate,
        "weight_decay": WEIGHT_DECAY,
        "batch": feeder.rows,
        "seq": feeder.window - LOOKAHEAD,
        "eval": evaluation,
        "train_seconds": round(time.time() - clock_start, 1),
    }
    (output / f"{plan.kind}.json").write_text(json.dumps(figures, indent=1))
    del model, optimizer
    torch.cuda.empty_cache()


def load_streams(folder: Path) -> "dict[str, TokenArray]":
    """The token arrays, as soon as data.py has written them all."""
    import numpy as np

    while not (folder / "DONE").exists():
        time.sleep(0.5)
    return {stream: np.load(folder / f"{stream}.npy") for stream in STREAMS}


def allow_tensor_float_32() -> None:
    """Let float32 products use the GPU's tensor cores."""
    import torch

    torch.set_float32_matmul_precision("high")


def delta_rule_works() -> bool:
    """Whether the GPU's gated delta rule is close enough to the float64 recurrence."""
    import model

    errors = model.selftest("cuda")
    log("delta rule, relative error against float64:", errors)
    return all(error < MAX_SELFTEST_ERROR for error in errors.values())


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Train target and draft, one after the other, on one GPU. Writes "
        "target.safetensors, draft.safetensors, a JSON file of figures for each, and DONE last."
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of token arrays, written by data.py")
    add("--out", type=Path, required=True, help="folder for checkpoints and figures")
    add(
        "--target-seconds",
        type=float,
        default=1000,
        help="training time of the target, 0 for none (default: %(default)s)",
    )
    add(
        "--draft-seconds",
        type=float,
        default=120,
        help="training time of the draft, 0 for none (default: %(default)s)",
    )
    add(
        "--target-deadline",
        type=float,
        default=math.inf,
        help="end the target's training so many seconds after the start",
    )
    add(
        "--draft-deadline",
        type=float,
        default=math.inf,
        help="end the draft's training so many seconds after the start",
    )
    add("--batch", type=int, default=20, help="windows in a batch (default: %(default)s)")
    add(
        "--sequence-length",
        type=int,
        default=4096,
        help="tokens in a window of the target; the draft's have 1024 (default: %(default)s)",
    )
    add(
        "--learning-rate",
        type=float,
        default=2.5e-3,
        help="peak rate of the target (default: %(default)s)",
    )
    add(
        "--draft-learning-rate",
        type=float,
        default=4e-3,
        help="peak rate of the draft (default: %(default)s)",
    )
    add(
        "--init",
        type=Path,
        help="checkpoint from which the target goes on (.safetensors, or a copy made by pack())",
    )
    add(
        "--cosine-start",
        type=float,
        default=0.0,
        help="point of the target's cosine at which to begin, 0 to 1 (default: %(default)s)",
    )
    add(
        "--cosine-end",
        type=float,
        default=1.0,
        help="point of the target's cosine at which to end, 0 to 1 (default: %(default)s)",
    )
    add("--no-selftest", action="store_true", help="trust the GPU's gated delta rule")
    add("--smoke", action="store_true", help="log every 10 steps and save at the end only")
    return parser.parse_args()


def main() -> None:
    """Check the delta rule, load the data, train the models that have a budget."""
    arguments = parse_arguments()
    output: Path = arguments.out
    output.mkdir(parents=True, exist_ok=True)
    log("started")
    import model

    allow_tensor_float_32()
    rows, length = arguments.batch, arguments.sequence_length
    if not arguments.no_selftest and not delta_rule_works():
        model.use_torch_delta_rule()
        rows, length = rows * length // 1024, 1024
        log("falling back to the torch delta rule", model.selftest("cuda"))

    streams = load_streams(arguments.data)
    counts = {name: len(tokens) for name, tokens in streams.items()}
    log("tokens", counts)
    (output / "data.json").write_text(json.dumps(counts))

    if arguments.target_seconds > 0:
        plan = Plan(
            kind="target",
            seconds=arguments.target_seconds,
            deadline=arguments.target_deadline,
            learning_rate=arguments.learning_rate,
            smoke=arguments.smoke,
            init=arguments.init,
            cosine_start=arguments.cosine_start,
            cosine_end=arguments.cosine_end,
        )
        train(plan, Feeder(streams, length + LOOKAHEAD, rows, seed=11), output)
    if arguments.draft_seconds > 0:
        plan = Plan(
            kind="draft",
            seconds=arguments.draft_seconds,
            deadline=arguments.draft_deadline,
            learning_rate=arguments.draft_learning_rate,
            smoke=arguments.smoke,
        )
        draft_rows = rows * length // DRAFT_SEQUENCE_LENGTH  # as many tokens as the target's
        feeder = Feeder(streams, DRAFT_SEQUENCE_LENGTH + LOOKAHEAD, draft_rows, seed=12)
        train(plan, feeder, output)
    (output / "DONE").write_text("ok")


if __name__ == "__main__":
    main()
