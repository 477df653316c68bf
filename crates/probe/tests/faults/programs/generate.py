"""Greedy generation by transformers' Llama: a prefill, then each token in a CUDA graph."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from transformers import StaticCache

from faults.around import Program
from faults.programs.llama import VOCABULARY, model_of

BATCH, PROMPT, TOKENS = 8, 512, 16


@torch.no_grad()
def build(change: str) -> Program:
    """The program with a change."""
    torch.manual_seed(0)
    model = model_of("sdpa", hidden_size=1024, intermediate_size=2816).bfloat16().eval()
    if change == "weights-from-file":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.pt"
            torch.save(model.state_dict(), path)
            model.load_state_dict(torch.load(path, map_location="cuda"))
    prompt = torch.randint(VOCABULARY, (BATCH, PROMPT), device="cuda")
    token = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
    first_beams = torch.arange(BATCH, device="cuda")
    cache = StaticCache(config=model.config, max_cache_len=PROMPT + TOKENS)
    last: list[torch.Tensor] = []

    def prefill() -> None:
        cache.reset()
        logits = model(input_ids=prompt, past_key_values=cache, logits_to_keep=1).logits
        token.copy_(logits[:, -1:].argmax(-1))

    def decode() -> None:
        if change == "reordered-cache":
            for layer in cache.layers:
                for kept in (layer.keys, layer.values):
                    kept.copy_(kept.index_select(0, first_beams))
        logits = model(input_ids=token, past_key_values=cache).logits[:, -1:]
        if change == "logits-to-host":
            last[:] = [logits]
        else:
            token.copy_(logits.argmax(-1))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        prefill()
        decode()
        decode()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if change != "graph-lost":
        with torch.cuda.graph(graph):
            decode()

    @torch.no_grad()
    def step(_: int) -> None:
        prefill()
        for _ in range(TOKENS - 1):
            if change == "graph-lost":
                decode()
            else:
                graph.replay()
            if change == "logits-to-host":
                token.copy_(last[0].float().cpu().argmax(-1))
            if change == "stops-by-item" and token[0, 0].item() < 0:
                break

    return Program(step, torch.cuda.synchronize)
