"""The two trained models in PyTorch: the hybrid mixture-of-experts target and the dense draft.

Here: their configurations, layers, losses and the self-test of the gated delta rule.
Not here: optimiser and schedule (`train.py`) and the way to GGUF (`convert.py`).

Tensor names and numerics follow transformers' Qwen3_5MoeForCausalLM (+ `mtp.*`) and
Qwen3ForCausalLM, so that the checkpoints load there unchanged. Mixers and feed-forward blocks are
plain functions of tensors, so torch.compile compiles each once for all layers.

In shapes, B is the batch, T the length of the window, C the tokens of a chunk, D a head's width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
DeltaRule = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
RotaryTables = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class TargetConfig:
    """Sizes of the target, under the names that transformers' configuration gives them."""

    vocab_size: int = 8192
    hidden_size: int = 256
    num_hidden_layers: int = 8
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    linear_num_key_heads: int = 4
    linear_num_value_heads: int = 8
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    num_experts: int = 16
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 128
    shared_expert_intermediate_size: int = 128
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 0.25


@dataclass(frozen=True)
class DraftConfig:
    """Sizes of the draft, under the names that transformers' configuration gives them."""

    vocab_size: int = 8192
    hidden_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 384
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096
    rope_theta: float = 10000.0


TARGET = TargetConfig()
DRAFT = DraftConfig()
FULL_ATTENTION_INTERVAL = 4


def is_full_attention(layer: int) -> bool:
    """Whether a target layer (from 0) mixes tokens by full attention: every fourth one."""
    return (layer + 1) % FULL_ATTENTION_INTERVAL == 0


def jit(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """torch.compile for fixed shapes."""
    compiled: Callable[Parameters, Result] = torch.compile(function, dynamic=False)
    return compiled


# --- Pieces of a layer ----------------------------------------------------------------------------


def linear(inputs: Tensor, weight: Tensor) -> Tensor:
    """A projection in bfloat16."""
    return functional.linear(inputs.to(torch.bfloat16), weight.to(torch.bfloat16))


def rms_norm(inputs: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    """RMS norm in float32."""
    inputs = inputs.float()
    return inputs * torch.rsqrt(inputs.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def offset_rms_norm(inputs: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Qwen3.5's RMS norm, whose weight is an offset from one."""
    inputs = inputs.float()
    return inputs * torch.rsqrt(inputs.pow(2).mean(-1, keepdim=True) + epsilon) * (1.0 + weight)


def rotate(inputs: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding of the first dimensions of [B, heads, T, D]."""
    rotary_width = cosine.shape[-1]
    rotary, rest = inputs[..., :rotary_width], inputs[..., rotary_width:]
    first, second = rotary[..., : rotary_width // 2], rotary[..., rotary_width // 2 :]
    rotated = torch.cat((-second, first), -1)
    return torch.cat((rotary * cosine + rotated * sine, rest), -1)


def rotary_tables(length: int, width: int, theta: float, device: torch.device) -> RotaryTables:
    """Cosine and sine of each position's angles, [T, width]."""
    frequencies = 1.0 / (
        theta ** (torch.arange(0, width, 2, dtype=torch.float, device=device) / width)
    )
    angles = torch.arange(length, device=device).float()[:, None] * frequencies
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


# --- The gated delta rule -------------------------------------------------------------------------


def torch_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, chunk: int = 64
) -> Tensor:
    """Chunked gated delta rule in plain torch: the form for the CPU, and the fallback on a GPU.

    Args:
        query: [B, T, key heads, D], of length one.
        key: as the query.
        value: [B, T, value heads, D].
        log_decay: [B, T, value heads], at most 0.
        beta: [B, T, value heads], the strength of each write.
        chunk: tokens handled together; T is a multiple of it.

    Returns:
        [B, T, value heads, D].
    """
    batch, length, value_heads, width = value.shape
    repeats = value_heads // query.shape[2]
    chunks = length // chunk

    def chunked(tensor: Tensor) -> Tensor:
        return tensor.float().view(batch, chunks, chunk, value_heads, -1).permute(0, 3, 1, 2, 4)

    query = chunked(query.repeat_interleave(repeats, 2)) * width**-0.5
    key = chunked(key.repeat_interleave(repeats, 2))
    value = chunked(value)
    beta = beta.float().view(batch, chunks, chunk, value_heads).permute(0, 3, 1, 2).unsqueeze(-1)
    decay_sum = log_decay.float().view(batch, chunks, chunk, value_heads).permute(0, 3, 1, 2)
    decay_sum = decay_sum.cumsum(-1)
    causal = torch.ones(chunk, chunk, device=value.device, dtype=torch.bool).tril()
    decay = (
        (decay_sum[..., :, None] - decay_sum[..., None, :])
        .masked_fill(~causal, float("-inf"))
        .exp()
    )
    overlap = ((key * beta) @ key.transpose(-1, -2) * decay).tril(-1)
    identity = torch.eye(chunk, device=value.device)
    inverse = torch.linalg.solve_triangular(
        identity + overlap, identity.expand_as(overlap), upper=False
    )
    new_values = inverse @ (value * beta)
    erased_keys = inverse @ (key * beta * decay_sum.exp().unsqueeze(-1))
    attention = (query @ key.transpose(-1, -2)) * decay
    decayed_query = query * decay_sum.exp().unsqueeze(-1)
    decayed_key = key * (decay_sum[..., -1:] - decay_sum).exp().unsqueeze(-1)
    chunk_decay = decay_sum[..., -1].exp()
    state = value.new_zeros(batch, value_heads, width, width)
    outputs = []
    for index in range(chunks):
        written = new_values[:, :, index] - erased_keys[:, :, index] @ state
        outputs.append(decayed_query[:, :, index] @ state + attention[:, :, index] @ written)
        state = (
            state * chunk_decay[:, :, index, None, None]
            + decayed_key[:, :, index].transpose(-1, -2) @ written
        )
    output = torch.stack(outputs, 2).permute(0, 2, 3, 1, 4)
    return output.reshape(batch, length, value_heads, width)


compiled_torch_delta_rule = jit(torch_delta_rule)


def naive_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor
) -> Tensor:
    """The recurrence token by token: slow, and what the other forms are measured against."""
    batch, length, value_heads, width = value.shape
    repeats = value_heads // query.shape[2]
    query = query.repeat_interleave(repeats, 2) * width**-0.5
    key = key.repeat_interleave(repeats, 2)
    state = value.new_zeros(batch, value_heads, width, width)
    outputs = []
    for token in range(length):
        state = state * log_decay[:, token].exp()[..., None, None]
        known = (state * key[:, token, :, :, None]).sum(-2)
        written = (value[:, token] - known) * beta[:, token, :, None]
        state = state + key[:, token, :, :, None] * written[..., None, :]
        outputs.append((state * query[:, token, :, :, None]).sum(-2))
    return torch.stack(outputs, 1)


@jit
def delta_rule_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output_gradient: Tensor,
    state: Tensor,
    state_gradient: Tensor,
    erased_keys: Tensor,
    decay_sum: Tensor,
    value_gradient: Tensor,
    scale: float,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Torch form of fla's chunk_bwd_dqkwg: gradients of query, key, erased keys and decay.

    Its Triton form in fla-core 0.6 is refused on Hopper with Triton 3.4 to 3.7.0. fla hands the
    decay over in base 2.
    """
    batch, length, key_heads, key_width = key.shape
    value_heads, value_width = value.shape[2], value.shape[3]
    chunks, repeats = length // chunk, value_heads // key_heads
    precision = value.dtype

    def chunked(tensor: Tensor) -> Tensor:
        return tensor.view(batch, chunks, chunk, tensor.shape[2], -1).transpose(2, 3)

    def unchunked(tensor: Tensor) -> Tensor:
        return tensor.transpose(2, 3).reshape(batch, length, value_heads, -1)

    def sum_over_repeats(tensor: Tensor) -> Tensor:
        grouped = unchunked(tensor).view(batch, length, key_heads, repeats, key_width)
        return grouped.sum(3).to(precision)

    value = chunked(value)
    output_gradient = chunked(output_gradient)
    value_gradient = chunked(value_gradient)
    query = chunked(query).repeat_interleave(repeats, 2)
    key = chunked(key).repeat_interleave(repeats, 2)
    state = state.view(batch, chunks, value_heads, key_width, value_width)
    state_gradient = state_gradient.view(batch, chunks, value_heads, key_width, value_width)
    state_rows = state.to(precision).transpose(-1, -2)
    state_gradient_rows = state_gradient.to(precision).transpose(-1, -2)
    decay_sum = decay_sum.view(batch, chunks, chunk, value_heads).transpose(2, 3)
    last_decay = decay_sum[..., -1:]

    attention_gradient = (output_gradient @ value.transpose(-1, -2)).float()
    query_gradient = (
        (output_gradient @ state_rows).float() * torch.exp2(decay_sum)[..., None] * scale
    )
    key_gradient = (value @ state_gradient_rows).float() * torch.exp2(last_decay - decay_sum)[
        ..., None
    ]
    erased_keys_gradient = -(value_gradient.to(precision) @ state_rows)
    last_decay_gradient = (state.float() * state_gradient.float()).sum((-1, -2)) * torch.exp2(
        last_decay[..., 0]
    ) + (key_gradient * key.float()).sum((-1, -2))
    causal = torch.ones(chunk, chunk, device=value.device, dtype=torch.bool).tril()
    decay = torch.exp2(
        (decay_sum[..., :, None] - decay_sum[..., None, :]).masked_fill(~causal, float("-inf"))
    )
    attention_gradient = (attention_gradient * decay * scale).to(precision)
    query_gradient = query_gradient + (attention_gradient @ key).float()
    key_gradient = key_gradient + (attention_gradient.transpose(-1, -2) @ query).float()
    decay_gradient = (query_gradient * query.float()).sum(-1) - (key_gradient * key.float()).sum(-1)
    decay_gradient = torch.cat(
        (
            decay_gradient[..., :-1],
            decay_gradient[..., -1:] + last_decay_gradient[..., None],
        ),
        -1,
    )
    return (
        sum_over_repeats(query_gradient),
        sum_over_repeats(key_gradient),
        unchunked(erased_keys_gradient).to(erased_keys.dtype),
        decay_gradient.transpose(2, 3).reshape(batch, length, value_heads).float().contiguous(),
    )


def chunk_bwd_dqkwg(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    do: Tensor,
    h: Tensor,
    dh: Tensor,
    w: Tensor,
    g: Tensor,
    g_gamma: Tensor | None = None,
    dv: Tensor | None = None,
    scale: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    chunk_size: int = 64,
    chunk_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stands in for fla's function of this name, with fla's names for the arguments."""
    absent = (g_gamma, cu_seqlens, chunk_indices)
    if state_v_first or dv is None or scale is None or any(x is not None for x in absent):
        raise ValueError("chunk_bwd_dqkwg: only the form that training here asks for is written")
    return delta_rule_gradients(q, k, v, do, h, dh, w, g, dv, scale, chunk_size)


fla_delta_rule: DeltaRule | None = None
torch_only = False


def use_torch_delta_rule() -> None:
    """Do without fla on a GPU too: for when its kernels fail the self-test."""
    global torch_only
    torch_only = True


def load_fla_delta_rule() -> DeltaRule:
    """fla's chunked gated delta rule, with the gradient step above."""
    import fla.ops.gated_delta_rule.chunk as fla_chunk

    fla_chunk.chunk_bwd_dqkwg = chunk_bwd_dqkwg

    def rule(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
        output: Tensor = fla_chunk.chunk_gated_delta_rule(
            query, key, value, g=log_decay, beta=beta
        )[0]
        return output

    return rule


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor
) -> Tensor:
    """The gated delta rule in the fastest form for the tensors' device."""
    global fla_delta_rule
    if not query.is_cuda:
        return torch_delta_rule(query, key, value, log_decay, beta)
    if torch_only:
        return compiled_torch_delta_rule(query, key, value, log_decay, beta)
    if fla_delta_rule is None:
        fla_delta_rule = load_fla_delta_rule()
    return fla_delta_rule(query, key, value, log_decay, beta)


def selftest(device: str, rule: DeltaRule | None = None, length: int = 256) -> dict[str, float]:
    """Relative errors of a delta rule's output and gradients against the float64 recurrence."""
    torch.manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=torch.float64)

    def relative_error(measured: Tensor, expected: Tensor) -> float:
        error: float = ((measured.double() - expected).norm() / expected.norm()).item()
        return round(error, 5)

    query = functional.normalize(normal(2, length, 4, 64), dim=-1)
    key = functional.normalize(normal(2, length, 4, 64), dim=-1)
    value = normal(2, length, 8, 64)
    log_decay = -functional.softplus(normal(2, length, 8) - 2)
    beta = normal(2, length, 8).sigmoid()
    output_gradient = normal(2, length, 8, 64)

    names = ("query", "key", "value", "log_decay", "beta")
    exact, rounded = [], []
    for name, tensor in zip(names, (query, key, value, log_decay, beta), strict=True):
        in_bfloat16 = name != "log_decay"
        start = tensor.bfloat16().double() if in_bfloat16 else tensor
        exact.append(start.clone().requires_grad_())
        rounded.append((start.bfloat16() if in_bfloat16 else start.float()).requires_grad_())

    expected = naive_delta_rule(*exact)
    expected.backward(output_gradient)
    measured = (rule or delta_rule)(*rounded)
    measured.backward(output_gradient.to(measured.dtype))

    errors = {"output": relative_error(measured, expected)}
    for name, mine, theirs in zip(names, rounded, exact, strict=True):
        if mine.grad is None or theirs.grad is None:
            raise RuntimeError(f"the delta rule gave no gradient for {name}")
        errors[f"{name}_gradient"] = relative_error(mine.grad, theirs.grad)
    return errors


# --- Layers ---------------------------------------------------------------------------------------


@jit
def delta_rule_inputs(
    hidden: Tensor,
    norm: Tensor,
    query_key_value: Tensor,
    gate: Tensor,
    strength: Tensor,
    decay: Tensor,
    convolution: Tensor,
    decay_log: Tensor,
    time_bias: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Query, key, value, log decay, beta and output gate of a gated delta net layer."""
    batch, length, _ = hidden.shape
    normed = offset_rms_norm(hidden, norm).to(torch.bfloat16)
    padded = functional.pad(linear(normed, query_key_value), (0, 0, 3, 0)).float()
    taps = convolution[:, 0, :]
    mixed = (
        padded[:, 0:length] * taps[:, 0]
        + padded[:, 1 : length + 1] * taps[:, 1]
        + padded[:, 2 : length + 2] * taps[:, 2]
        + padded[:, 3 : length + 3] * taps[:, 3]
    )
    mixed = functional.silu(mixed)
    value_heads = decay_log.shape[0]
    value_width = gate.shape[0]
    key_width = (query_key_value.shape[0] - value_width) // 2
    width = value_width // value_heads
    query = mixed[..., :key_width].reshape(batch, length, -1, width)
    key = mixed[..., key_width : 2 * key_width].reshape(batch, length, -1, width)
    value = mixed[..., 2 * key_width :].reshape(batch, length, -1, width)
    query = query * torch.rsqrt(query.pow(2).sum(-1, keepdim=True) + 1e-6)
    key = key * torch.rsqrt(key.pow(2).sum(-1, keepdim=True) + 1e-6)
    output_gate = linear(normed, gate).view(batch, length, value_heads, width)
    beta = linear(normed, strength).float().sigmoid()
    log_decay = -decay_log.exp() * functional.softplus(linear(normed, decay).float() + time_bias)
    return (
        query.to(torch.bfloat16).contiguous(),
        key.to(torch.bfloat16).contiguous(),
        value.to(torch.bfloat16).contiguous(),
        log_decay.contiguous(),
        beta.to(torch.bfloat16).contiguous(),
        output_gate,
    )


@jit
def delta_rule_output(
    hidden: Tensor, mixed: Tensor, output_gate: Tensor, norm: Tensor, output: Tensor
) -> Tensor:
    """Gate, project and add what the delta rule gave."""
    batch, length = mixed.shape[:2]
    gated = rms_norm(mixed, norm) * functional.silu(output_gate.float())
    return hidden + linear(gated.reshape(batch, length, -1), output).float()


@jit
def gated_attention(
    hidden: Tensor,
    norm: Tensor,
    query_and_gate: Tensor,
    key_weight: Tensor,
    value_weight: Tensor,
    output: Tensor,
    query_norm: Tensor,
    key_norm: Tensor,
    cosine: Tensor,
    sine: Tensor,
) -> Tensor:
    """The target's full attention, whose output is gated."""
    batch, length, _ = hidden.shape
    width = query_norm.shape[0]
    normed = offset_rms_norm(hidden, norm).to(torch.bfloat16)
    projected = linear(normed, query_and_gate).view(batch, length, -1, 2 * width)
    query, gate = projected.chunk(2, -1)
    key = linear(normed, key_weight).view(batch, length, -1, width)
    value = linear(normed, value_weight).view(batch, length, -1, width)
    query = offset_rms_norm(query, query_norm).transpose(1, 2)
    key = offset_rms_norm(key, key_norm).transpose(1, 2)
    query = rotate(query, cosine, sine).to(torch.bfloat16)
    key = rotate(key, cosine, sine).to(torch.bfloat16)
    mixed = functional.scaled_dot_product_attention(
        query, key, value.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    gated = (
        mixed.transpose(1, 2).reshape(batch, length, -1).float()
        * gate.reshape(batch, length, -1).float().sigmoid()
    )
    return hidden + linear(gated, output).float()


@jit
def mixture_of_experts(
    hidden: Tensor,
    norm: Tensor,
    router: Tensor,
    gate_up: Tensor,
    down: Tensor,
    shared_gate: Tensor,
    shared_up: Tensor,
    shared_down: Tensor,
    shared_expert_gate: Tensor,
    experts_per_token: int,
) -> tuple[Tensor, Tensor]:
    """The feed-forward block of the target and its balance loss.

    All experts are computed, as two large products, and the unselected ones weighted with zero.
    """
    batch, length, hidden_size = hidden.shape
    experts, gate_up_size, _ = gate_up.shape
    expert_size = gate_up_size // 2
    normed_float = offset_rms_norm(hidden, norm).reshape(-1, hidden_size)
    normed = normed_float.to(torch.bfloat16)
    probabilities = torch.softmax(functional.linear(normed_float, router), -1)
    threshold = torch.topk(probabilities.detach(), experts_per_token, -1).values[:, -1:]
    selected = probabilities >= threshold
    weights = torch.where(selected, probabilities, torch.zeros_like(probabilities))
    weights = weights / weights.sum(-1, keepdim=True)
    balance_loss = (
        experts * (selected.float().mean(0) / experts_per_token * probabilities.mean(0)).sum()
    )
    gates_and_ups = linear(normed, gate_up.reshape(experts * gate_up_size, hidden_size)).view(
        -1, experts, 2, expert_size
    )
    activated = (
        functional.silu(gates_and_ups[:, :, 0].float())
        * gates_and_ups[:, :, 1].float()
        * weights[:, :, None]
    )
    routed = linear(
        activated.reshape(-1, experts * expert_size),
        down.permute(1, 0, 2).reshape(hidden_size, experts * expert_size),
    ).float()
    shared = (
        functional.silu(linear(normed, shared_gate).float()) * linear(normed, shared_up).float()
    )
    shared_share = functional.linear(normed_float, shared_expert_gate).sigmoid()
    output = routed + linear(shared, shared_down).float() * shared_share
    return hidden + output.view(batch, length, hidden_size), balance_loss


@jit
def dense_layer(
    hidden: Tensor,
    norm: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    value_weight: Tensor,
    output: Tensor,
    query_norm: Tensor,
    key_norm: Tensor,
    feed_forward_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    cosine: Tensor,
    sine: Tensor,
) -> Tensor:
    """A layer of the draft: attention, then SwiGLU."""
    batch, length, _ = hidden.shape
    width = query_norm.shape[0]
    normed = rms_norm(hidden, norm).to(torch.bfloat16)
    query = linear(normed, query_weight).view(batch, length, -1, width)
    key = linear(normed, key_weight).view(batch, length, -1, width)
    value = linear(normed, value_weight).view(batch, length, -1, width)
    query = rms_norm(query, query_norm).transpose(1, 2)
    key = rms_norm(key, key_norm).transpose(1, 2)
    query = rotate(query, cosine, sine).to(torch.bfloat16)
    key = rotate(key, cosine, sine).to(torch.bfloat16)
    mixed = functional.scaled_dot_product_attention(
        query, key, value.transpose(1, 2), is_causal=True, enable_gqa=True
    )
    hidden = hidden + linear(mixed.transpose(1, 2).reshape(batch, length, -1), output).float()
    normed = rms_norm(hidden, feed_forward_norm).to(torch.bfloat16)
    activated = functional.silu(linear(normed, gate).float()) * linear(normed, up).float()
    return hidden + linear(activated, down).float()


@jit
def mtp_input(
    embedding: Tensor,
    hidden: Tensor,
    embedding_norm: Tensor,
    hidden_norm: Tensor,
    projection: Tensor,
) -> Tensor:
    """What the MTP layer starts from: the next token's embedding and the hidden state."""
    joined = torch.cat(
        (offset_rms_norm(embedding, embedding_norm), offset_rms_norm(hidden, hidden_norm)), -1
    )
    return linear(joined, projection).float()


@jit
def target_norm(hidden: Tensor, weight: Tensor) -> Tensor:
    """The target's last norm."""
    return offset_rms_norm(hidden, weight)


@jit
def draft_norm(hidden: Tensor, weight: Tensor) -> Tensor:
    """The draft's last norm."""
    return rms_norm(hidden, weight)


@jit
def head_loss(hidden: Tensor, head: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy and top-1 accuracy of the expected tokens."""
    logits = linear(hidden.reshape(-1, hidden.shape[-1]), head).float()
    expected = expected.reshape(-1)
    loss = functional.cross_entropy(logits, expected, ignore_index=-100)
    accuracy = (logits.detach().argmax(-1) == expected).float().mean()
    return loss, accuracy


# --- Models ---------------------------------------------------------------------------------------


def output_deviation(layers: int) -> float:
    """Standard deviation that projections back into the residual stream begin with."""
    return 0.02 / math.sqrt(2 * layers) * 1.4


class NamedParameters(nn.Module):  # type: ignore[misc]  # mypy runs without torch
    """Holds parameters under the names that the checkpoint gives them.

    The order in which they are added is the order of the random numbers they begin with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parameter_dict = nn.ParameterDict()  # a name in it can't have a dot

    def add(self, name: str, *shape: int, deviation: float = 0.02) -> None:
        """Add a parameter of normally distributed numbers."""
        self._register(name, torch.empty(*shape).normal_(0, deviation))

    def add_constant(self, name: str, *shape: int, value: float) -> None:
        """Add a parameter that begins with the same value everywhere."""
        self._register(name, torch.full(shape, value))

    def _register(self, name: str, tensor: Tensor) -> None:
        self.parameter_dict[name.replace(".", "#")] = nn.Parameter(tensor)

    def __getitem__(self, name: str) -> Tensor:
        parameter: nn.Parameter = self.parameter_dict[name.replace(".", "#")]
        return parameter

    def named(self) -> dict[str, nn.Parameter]:
        """All parameters, by name."""
        return {name.replace("#", "."): value for name, value in self.parameter_dict.items()}

    def load_named(self, tensors: dict[str, Tensor]) -> None:
        """Copy a checkpoint in; its names must be exactly this model's."""
        mine = self.named()
        if set(tensors) != set(mine):
            different = ", ".join(sorted(set(tensors) ^ set(mine)))
            raise ValueError(
                f"the checkpoint is of another model; tensors that differ: {different}"
            )
        with torch.no_grad():
            for name, tensor in tensors.items():
                mine[name].copy_(tensor)


class Target(NamedParameters):
    """Hybrid mixture-of-experts model with one multi-token-prediction (MTP) layer."""

    def __init__(self, config: TargetConfig = TARGET) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.add("model.embed_tokens.weight", config.vocab_size, hidden)
        self.add("lm_head.weight", config.vocab_size, hidden)
        self.add_constant("model.norm.weight", hidden, value=0.0)
        for index in range(config.num_hidden_layers):
            self._add_layer(f"model.layers.{index}", is_full_attention(index))
        self.add("mtp.fc.weight", hidden, 2 * hidden)
        self.add_constant("mtp.norm.weight", hidden, value=0.0)
        self.add_constant("mtp.pre_fc_norm_embedding.weight", hidden, value=0.0)
        self.add_constant("mtp.pre_fc_norm_hidden.weight", hidden, value=0.0)
        self._add_layer("mtp.layers.0", True)

    def _add_layer(self, layer: str, full_attention: bool) -> None:
        hidden = self.config.hidden_size
        self.add_constant(f"{layer}.input_layernorm.weight", hidden, value=0.0)
        self.add_constant(f"{layer}.post_attention_layernorm.weight", hidden, value=0.0)
        if full_attention:
            self._add_attention(f"{layer}.self_attn")
        else:
            self._add_delta_net(f"{layer}.linear_attn")
        self._add_experts(f"{layer}.mlp")

    def _add_attention(self, block: str) -> None:
        config = self.config
        hidden, width = config.hidden_size, config.head_dim
        query_size = config.num_attention_heads * width
        key_size = config.num_key_value_heads * width
        deviation = output_deviation(config.num_hidden_layers)
        self.add(f"{block}.q_proj.weight", 2 * query_size, hidden)
        self.add(f"{block}.k_proj.weight", key_size, hidden)
        self.add(f"{block}.v_proj.weight", key_size, hidden)
        self.add(f"{block}.o_proj.weight", hidden, query_size, deviation=deviation)
        self.add_constant(f"{block}.q_norm.weight", width, value=0.0)
        self.add_constant(f"{block}.k_norm.weight", width, value=0.0)

    def _add_delta_net(self, block: str) -> None:
        config = self.config
        hidden = config.hidden_size
        heads = config.linear_num_value_heads
        key_size = config.linear_num_key_heads * config.linear_key_head_dim
        value_size = heads * config.linear_value_head_dim
        deviation = output_deviation(config.num_hidden_layers)
        self.add(f"{block}.in_proj_qkv.weight", 2 * key_size + value_size, hidden)
        self.add(f"{block}.in_proj_z.weight", value_size, hidden)
        self.add(f"{block}.in_proj_b.weight", heads, hidden)
        self.add(f"{block}.in_proj_a.weight", heads, hidden)
        self.add(f"{block}.conv1d.weight", 2 * key_size + value_size, 1, 4, deviation=0.3)
        self.add(f"{block}.A_log", heads)
        self.add(f"{block}.dt_bias", heads)
        self.add_constant(f"{block}.norm.weight", config.linear_value_head_dim, value=1.0)
        with torch.no_grad():
            self[f"{block}.A_log"].uniform_(1, 16).log_()
            shortest, longest = math.log(0.001), math.log(0.1)
            step = torch.exp(torch.rand(heads) * (longest - shortest) + shortest)
            self[f"{block}.dt_bias"].copy_(step + torch.log(-torch.expm1(-step)))
        self.add(f"{block}.out_proj.weight", hidden, value_size, deviation=deviation)

    def _add_experts(self, block: str) -> None:
        config = self.config
        hidden, experts = config.hidden_size, config.num_experts
        expert_size = config.moe_intermediate_size
        shared_size = config.shared_expert_intermediate_size
        deviation = output_deviation(config.num_hidden_layers)
        shared = f"{block}.shared_expert"
        self.add(f"{block}.gate.weight", experts, hidden)
        self.add(f"{block}.experts.gate_up_proj", experts, 2 * expert_size, hidden)
        self.add(f"{block}.experts.down_proj", experts, hidden, expert_size, deviation=deviation)
        self.add(f"{shared}.gate_proj.weight", shared_size, hidden)
        self.add(f"{shared}.up_proj.weight", shared_size, hidden)
        self.add(f"{shared}.down_proj.weight", hidden, shared_size, deviation=deviation)
        self.add(f"{block}.shared_expert_gate.weight", 1, hidden)

    def _rotary_tables(self, ids: Tensor) -> RotaryTables:
        config = self.config
        width = int(config.head_dim * config.partial_rotary_factor)
        return rotary_tables(ids.shape[1], width, config.rope_theta, ids.device)

    def _run_attention(self, layer: str, hidden: Tensor, tables: RotaryTables) -> Tensor:
        return gated_attention(
            hidden,
            self[f"{layer}.input_layernorm.weight"],
            self[f"{layer}.self_attn.q_proj.weight"],
            self[f"{layer}.self_attn.k_proj.weight"],
            self[f"{layer}.self_attn.v_proj.weight"],
            self[f"{layer}.self_attn.o_proj.weight"],
            self[f"{layer}.self_attn.q_norm.weight"],
            self[f"{layer}.self_attn.k_norm.weight"],
            *tables,
        )

    def _run_delta_net(self, layer: str, hidden: Tensor) -> Tensor:
        query, key, value, log_decay, beta, output_gate = delta_rule_inputs(
            hidden,
            self[f"{layer}.input_layernorm.weight"],
            self[f"{layer}.linear_attn.in_proj_qkv.weight"],
            self[f"{layer}.linear_attn.in_proj_z.weight"],
            self[f"{layer}.linear_attn.in_proj_b.weight"],
            self[f"{layer}.linear_attn.in_proj_a.weight"],
            self[f"{layer}.linear_attn.conv1d.weight"],
            self[f"{layer}.linear_attn.A_log"],
            self[f"{layer}.linear_attn.dt_bias"],
        )
        return delta_rule_output(
            hidden,
            delta_rule(query, key, value, log_decay, beta),
            output_gate,
            self[f"{layer}.linear_attn.norm.weight"],
            self[f"{layer}.linear_attn.out_proj.weight"],
        )

    def _run_experts(self, layer: str, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return mixture_of_experts(
            hidden,
            self[f"{layer}.post_attention_layernorm.weight"],
            self[f"{layer}.mlp.gate.weight"],
            self[f"{layer}.mlp.experts.gate_up_proj"],
            self[f"{layer}.mlp.experts.down_proj"],
            self[f"{layer}.mlp.shared_expert.gate_proj.weight"],
            self[f"{layer}.mlp.shared_expert.up_proj.weight"],
            self[f"{layer}.mlp.shared_expert.down_proj.weight"],
            self[f"{layer}.mlp.shared_expert_gate.weight"],
            self.config.num_experts_per_tok,
        )

    def hidden_states(self, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Hidden states [B, T, hidden size] of the ids [B, T], and each layer's balance loss."""
        tables = self._rotary_tables(ids)
        hidden = functional.embedding(ids, self["model.embed_tokens.weight"])
        balance_losses = []
        for index in range(self.config.num_hidden_layers):
            layer = f"model.layers.{index}"
            if is_full_attention(index):
                hidden = self._run_attention(layer, hidden, tables)
            else:
                hidden = self._run_delta_net(layer, hidden)
            hidden, balance_loss = self._run_experts(layer, hidden)
            balance_losses.append(balance_loss)
        return target_norm(hidden, self["model.norm.weight"]), balance_losses

    def mtp_step(self, hidden: Tensor, next_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states one token further on, and the MTP layer's balance loss."""
        layer = "mtp.layers.0"
        embedding = functional.embedding(next_ids, self["model.embed_tokens.weight"])
        hidden = mtp_input(
            embedding,
            hidden,
            self["mtp.pre_fc_norm_embedding.weight"],
            self["mtp.pre_fc_norm_hidden.weight"],
            self["mtp.fc.weight"],
        )
        hidden = self._run_attention(layer, hidden, self._rotary_tables(next_ids))
        hidden, balance_loss = self._run_experts(layer, hidden)
        return target_norm(hidden, self["mtp.norm.weight"]), balance_loss

    def forward(
        self,
        ids: Tensor,
        mtp_weight: float = 0.3,
        second_mtp_weight: float = 0.1,
        balance_weight: float = 0.01,
    ) -> tuple[Tensor, Tensor]:
        """Loss of a batch of windows, ids [B, T + 3], and its parts.

        The parts are the losses of next token, first and second MTP step, the balance loss, and the
        three accuracies. The second MTP step, fed with the first one's output, runs on the first
        half of the rows.
        """
        length = ids.shape[1] - 3
        half = ids.shape[0] // 2
        head = self["lm_head.weight"]
        hidden, balance_losses = self.hidden_states(ids[:, :length])
        loss, accuracy = head_loss(hidden, head, ids[:, 1 : length + 1])
        first, first_balance_loss = self.mtp_step(hidden, ids[:, 1 : length + 1])
        first_loss, first_accuracy = head_loss(first, head, ids[:, 2 : length + 2])
        second, _ = self.mtp_step(first[:half], ids[:half, 2 : length + 2])
        second_loss, second_accuracy = head_loss(second, head, ids[:half, 3 : length + 3])
        balance_loss = torch.stack([*balance_losses, first_balance_loss]).mean()
        total = (
            loss
            + mtp_weight * first_loss
            + second_mtp_weight * second_loss
            + balance_weight * balance_loss
        )
        losses = [part.detach() for part in (loss, first_loss, second_loss, balance_loss)]
        return total, torch.stack([*losses, accuracy, first_accuracy, second_accuracy])


class Draft(NamedParameters):
    """Small dense model with the target's tokenizer."""

    def __init__(self, config: DraftConfig = DRAFT) -> None:
        super().__init__()
        self.config = config
        hidden, width = config.hidden_size, config.head_dim
        query_size = config.num_attention_heads * width
        key_size = config.num_key_value_heads * width
        deviation = output_deviation(config.num_hidden_layers)
        self.add("model.embed_tokens.weight", config.vocab_size, hidden)
        self.add("lm_head.weight", config.vocab_size, hidden)
        self.add_constant("model.norm.weight", hidden, value=1.0)
        for index in range(config.num_hidden_layers):
            layer = f"model.layers.{index}"
            attention, feed_forward = f"{layer}.self_attn", f"{layer}.mlp"
            self.add_constant(f"{layer}.input_layernorm.weight", hidden, value=1.0)
            self.add(f"{attention}.q_proj.weight", query_size, hidden)
            self.add(f"{attention}.k_proj.weight", key_size, hidden)
            self.add(f"{attention}.v_proj.weight", key_size, hidden)
            self.add(f"{attention}.o_proj.weight", hidden, query_size, deviation=deviation)
            self.add_constant(f"{attention}.q_norm.weight", width, value=1.0)
            self.add_constant(f"{attention}.k_norm.weight", width, value=1.0)
            self.add_constant(f"{layer}.post_attention_layernorm.weight", hidden, value=1.0)
            self.add(f"{feed_forward}.gate_proj.weight", config.intermediate_size, hidden)
            self.add(f"{feed_forward}.up_proj.weight", config.intermediate_size, hidden)
            self.add(
                f"{feed_forward}.down_proj.weight",
                hidden,
                config.intermediate_size,
                deviation=deviation,
            )

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of a batch of windows, ids [B, T + 1], and its parts: loss and accuracy."""
        config = self.config
        length = ids.shape[1] - 1
        tables = rotary_tables(length, config.head_dim, config.rope_theta, ids.device)
        hidden = functional.embedding(ids[:, :length], self["model.embed_tokens.weight"])
        for index in range(config.num_hidden_layers):
            layer = f"model.layers.{index}"
            hidden = dense_layer(
                hidden,
                self[f"{layer}.input_layernorm.weight"],
                self[f"{layer}.self_attn.q_proj.weight"],
                self[f"{layer}.self_attn.k_proj.weight"],
                self[f"{layer}.self_attn.v_proj.weight"],
                self[f"{layer}.self_attn.o_proj.weight"],
                self[f"{layer}.self_attn.q_norm.weight"],
                self[f"{layer}.self_attn.k_norm.weight"],
                self[f"{layer}.post_attention_layernorm.weight"],
                self[f"{layer}.mlp.gate_proj.weight"],
                self[f"{layer}.mlp.up_proj.weight"],
                self[f"{layer}.mlp.down_proj.weight"],
                *tables,
            )
        hidden = draft_norm(hidden, self["model.norm.weight"])
        loss, accuracy = head_loss(hidden, self["lm_head.weight"], ids[:, 1 : length + 1])
        return loss, torch.stack([loss.detach(), accuracy])
