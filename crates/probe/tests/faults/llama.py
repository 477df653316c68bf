"""A training step of transformers' Llama: random weights, autocast to bf16, fused AdamW."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

BATCH, LENGTH, VOCABULARY = 4, 2048, 16000


def model_of(attention: str, **sizes: Any) -> Any:
    sizes = {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        **sizes,
    }
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(LlamaConfig(**sizes), attn_implementation=attention)


def build(change: str) -> Callable[[int], None]:
    torch.manual_seed(0)
    model = model_of("eager" if change == "eager-attention" else "sdpa", use_cache=False)
    model.train()
    if change == "checkpointing":
        model.gradient_checkpointing_enable()
    if change == "float32-layer":
        in_float32(model.model.layers[1].mlp)
    if change == "synchronize":
        for layer in model.model.layers:
            layer.register_forward_hook(lambda *_: torch.cuda.synchronize())
    parameters = list(model.parameters())
    fused = change != "foreach-adamw"
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=fused, foreach=not fused)
    torch.manual_seed(2 if change == "other-data" else 1)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH)).pin_memory()
    mask = None
    if change == "mask":
        mask = torch.ones(BATCH, LENGTH, device="cuda", dtype=torch.int64)
        mask[-1, -100:] = 0

    def step(_: int) -> None:
        given = tokens.to("cuda", non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            out = model(input_ids=given, labels=given, attention_mask=mask)
        out.loss.backward()
        gradients = [parameter.grad for parameter in parameters]
        if change == "gradient-copies":
            for parameter in parameters:
                parameter.grad = parameter.grad.clone()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if change == "item":
            [norm.item() for norm in torch._foreach_norm(gradients)]
        if change == "print-of-tensor":
            print(out.logits[0, 0, :8])
        optimizer.step()
        optimizer.zero_grad(set_to_none=change != "zeroed-gradients")
        if change == "empty-cache":
            torch.cuda.empty_cache()

    return step


def in_float32(module: Any) -> None:
    """Takes a module out of autocast."""
    forward = module.forward

    def plain(hidden: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", enabled=False):
            result: torch.Tensor = forward(hidden.float())
        return result

    module.forward = plain
