"""Data-parallel training on two GPUs: NCCL sums gradients under the backward pass."""

from __future__ import annotations

import torch
from torch.cuda import nccl

from faults.around import Program

LAYERS = 4
WIDTH = 6144


def build(change: str) -> Program:
    """The program with a change."""
    torch.manual_seed(0)
    devices = range(2)
    shape, dtype = (WIDTH, WIDTH), torch.bfloat16
    dout = [torch.randn(shape, device=device, dtype=dtype) for device in devices]
    weights = [
        [torch.randn(shape, device=device, dtype=dtype) / WIDTH**0.5 for device in devices]
        for _ in range(LAYERS)
    ]
    gradients = [[torch.empty_like(weight) for weight in layer] for layer in weights]
    computes = [torch.cuda.current_stream(device) for device in devices]
    sums = computes
    if change != "one-stream":
        sums = [torch.cuda.Stream(device) for device in devices]

    def step(number: int) -> None:
        grown = dout
        for layer, gradient in zip(weights, gradients, strict=True):
            for device in devices:
                with torch.cuda.device(device):
                    torch.mm(grown[device].t(), layer[device], out=gradient[device])
                    # What the stream computed until here, and nothing after it.
                    sums[device].wait_stream(computes[device])
            nccl.all_reduce(gradient, streams=sums)
            grown = [grown[device] @ layer[device] for device in devices]
            if change == "waits-each":
                for compute, done in zip(computes, sums, strict=True):
                    compute.wait_stream(done)
        for compute, done in zip(computes, sums, strict=True):
            compute.wait_stream(done)

    def wait() -> None:
        for device in devices:
            torch.cuda.synchronize(device)

    return Program(step, wait)
