"""Attention forward and backward, with matrix products and a copy from the host under them."""

import time
from collections.abc import Callable

import torch

aten = torch.ops.aten


def build(change: str) -> Callable[[int], None]:
    device = "cuda"
    torch.manual_seed(7 if change == "other-seed" else 0)
    if change == "memory-elsewhere":
        # Kept for as long as the step is.
        elsewhere = torch.ones(1 << 28, dtype=torch.uint8, device=device)
    if change == "threads":
        torch.set_num_threads(1)
    dtype = torch.float32 if change == "float32" else torch.float16
    q, k, v, dout = (torch.randn(1, 6144, 2, 64, device=device, dtype=dtype) for _ in range(4))
    weight = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    batch = torch.randn(1 << 24, device="cpu").to(torch.bfloat16)
    batch = batch if change == "pageable" else batch.pin_memory()
    landing = torch.empty(batch.shape, dtype=batch.dtype, device=device)
    scratch = torch.ones(32, device=device)
    main = torch.cuda.current_stream()
    side = main if change == "one-stream" else torch.cuda.Stream()
    splits = 1 if change == "one-split" else None

    def attention() -> None:
        given = (q, k, v)
        if change == "contiguous":
            # Into another order of the axes and back, as a wrapper does that does not
            # know which one its kernel takes.
            given = tuple(x.transpose(1, 2).contiguous() for x in given)
            given = tuple(x.transpose(1, 2).contiguous() for x in given)
        if change == "to-host-and-back":
            given = tuple(x.to("cpu").to(device) for x in given)
        if change == "other-kernel":
            saved = aten._flash_attention_forward(*given, None, None, 6144, 6144, 0.0, False, False)
            out, lse, state, unused, _ = saved
            aten._flash_attention_backward(
                dout, *given, out, lse, None, None, 6144, 6144, 0.0, False, state, unused
            )
            return
        out, lse, seed, offset, seqlen_q, seqlen_k = aten._efficient_attention_forward(
            *given, None, None, None, None, None, 0.0, 0, True
        )
        aten._efficient_attention_backward(
            dout, *given, None, out, None, None, seqlen_q, seqlen_k, lse, 0.0, seed, offset, 0,
            False, num_splits_key=splits,
        )  # fmt: skip

    def step(number: int) -> None:
        if side is not main:
            side.wait_stream(main)
        with torch.cuda.stream(side):
            landing.copy_(batch, non_blocking=True)
        if change == "waits-at-once":
            main.wait_stream(side)
        product = weight @ weight
        product = product @ weight
        attention()
        if change == "small-launches":
            for _ in range(400):
                product[0].add_(1)
        if change == "slow-host":
            time.sleep(0.02)
        product[0].add_(0)
        if change == "memory-elsewhere":
            elsewhere.numel()
        if change == "recompile":
            source = f"__global__ void scale(float* x) {{ x[threadIdx.x] *= {number}.f; }}"
            kernel = torch.cuda._compile_kernel(f'extern "C" {source}', "scale")
            kernel((1, 1, 1), (32, 1, 1), (scratch,))
        main.wait_stream(side)

    return step
