"""Built-in operators as public libraries compute them: torch, Liger-Kernel, flash-linear-attention,
transformers. `tests/gpu/operators/run` holds them to regatta's references on a GPU.

Each imports its library itself: every function of a file has a process of its own.
"""

from functools import cache
from types import SimpleNamespace

import torch
from torch.nn import functional


@cache
def _flex():
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def rmsnorm_torch(x: torch.Tensor, weight, eps):
    return functional.rms_norm(x, weight.shape, weight, eps)


def rmsnorm_liger(x: torch.Tensor, weight, eps):
    from liger_kernel.ops import LigerRMSNormFunction

    return LigerRMSNormFunction.apply(x, weight, eps)


def layernorm_torch(x: torch.Tensor, weight, bias, eps):
    return functional.layer_norm(x, weight.shape, weight, bias, eps)


def layernorm_liger(x: torch.Tensor, weight, bias, eps):
    from liger_kernel.ops import LigerLayerNormFunction

    return LigerLayerNormFunction.apply(x, weight, bias, eps)


def swiglu_torch(gate: torch.Tensor, up):
    return functional.silu(gate) * up


def swiglu_liger(gate: torch.Tensor, up):
    from liger_kernel.ops import LigerSiLUMulFunction

    return LigerSiLUMulFunction.apply(gate, up)


def rope_transformers(x: torch.Tensor, cos, sin):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = (torch.cat((half, half), -1)[None] for half in (cos, sin))
    return apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=2)[0]


def rope_liger(x: torch.Tensor, cos, sin):
    from liger_kernel.ops import LigerRopeFunction

    # It writes into its inputs, laid out as batch, heads, sequence.
    cos, sin = (torch.cat((half, half), -1)[None] for half in (cos, sin))
    q = x.transpose(1, 2).clone(memory_format=torch.preserve_format)
    k = q[:, :1].clone(memory_format=torch.preserve_format)
    return LigerRopeFunction.apply(q, k, cos, sin)[0].transpose(1, 2)


def cross_entropy_torch(logits: torch.Tensor, labels):
    return functional.cross_entropy(logits.float(), labels, reduction="none")


def matmul_gelu_torch(a: torch.Tensor, b):
    return functional.gelu(a @ b)


def matmul_gelu_tanh_torch(a: torch.Tensor, b):
    return functional.gelu(a @ b, approximate="tanh")


def softcap_flex(q: torch.Tensor, k, v, cap, scale):
    def capped(score, b, h, row, column):
        return cap * torch.tanh(score / cap)

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return _flex()(q, k, v, score_mod=capped, scale=scale, enable_gqa=True).transpose(1, 2)


def softcap_transformers(q: torch.Tensor, k, v, cap, scale):
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    heads = SimpleNamespace(num_key_value_groups=q.shape[2] // k.shape[2], training=False)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return eager_attention_forward(heads, q, k, v, None, scaling=scale, softcap=cap)[0]


def sinks_transformers(q: torch.Tensor, k, v, sink, scale):
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    heads = SimpleNamespace(
        num_key_value_groups=q.shape[2] // k.shape[2], training=False, sinks=sink.to(q.dtype)
    )
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return eager_attention_forward(heads, q, k, v, None, scaling=scale)[0]


def bias_torch(q: torch.Tensor, k, v, bias, scale):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, scale=scale, enable_gqa=True
    ).transpose(1, 2)


def mla_torch(q: torch.Tensor, cache, scale):
    key, value = cache[:, None], cache[:, None, :, :512]
    out = functional.scaled_dot_product_attention(
        q[:, :, None], key, value, scale=scale, enable_gqa=True
    )
    return out[:, :, 0]


def gated_delta_fla(q: torch.Tensor, k, v, g, beta, initial_state, scale):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return chunk_gated_delta_rule(
        q, k, v, g, beta, scale=scale, initial_state=initial_state, output_final_state=True
    )


def gated_delta_fla_recurrent(q: torch.Tensor, k, v, g, beta, initial_state, scale):
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    return fused_recurrent_gated_delta_rule(
        q, k, v, g, beta=beta, scale=scale, initial_state=initial_state, output_final_state=True
    )


def product_torch(a: torch.Tensor, a_scale, b, b_scale):
    by_columns = b.t().contiguous().t()
    return torch._scaled_mm(a, by_columns, a_scale, b_scale, out_dtype=torch.bfloat16)
