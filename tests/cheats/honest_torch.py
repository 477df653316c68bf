"""Functions of torch tensors that compute attention honestly, each in a way that public code has;
none may be refused. `table.py` tries them: those that need a GPU, there alone."""

from __future__ import annotations

import contextlib
import functools
import math
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

GPU = torch.cuda.is_available()
_kept: dict[Any, Any] = {}

torch.backends.cuda.matmul.allow_tf32 = False


def _made(name: str, make: Callable[[], Any]) -> Any:
    """Tensors that the first call makes, kept for the next ones."""
    if name not in _kept:
        _kept[name] = make()
    return _kept[name]


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) * (1.0 / math.sqrt(q.shape[-1]))
    return torch.softmax(scores, -1) @ v


def honest(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """F.scaled_dot_product_attention"""
    return F.scaled_dot_product_attention(q, k, v)


def matmul(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """matrix products"""
    return _attend(q, k, v)


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """einsum"""
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def batched_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """bmm and baddbmm of flattened heads"""
    q1, k1, v1 = (x.flatten(0, 1) for x in (q, k, v))
    empty = q1.new_empty(len(q1), q1.shape[1], k1.shape[1])
    scale = 1.0 / math.sqrt(q.shape[-1])
    scores = torch.baddbmm(empty, q1, k1.transpose(1, 2), beta=0, alpha=scale)
    return torch.bmm(scores.softmax(-1), v1).view(q.shape)


def in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a softmax in place"""
    scores = q @ k.transpose(-1, -2)
    scores.mul_(1.0 / math.sqrt(q.shape[-1]))
    scores.sub_(scores.amax(-1, keepdim=True)).exp_()
    scores.div_(scores.sum(-1, keepdim=True))
    return scores @ v


def own_buffers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """scores and result in buffers that are kept between calls"""
    with torch.no_grad():
        scores = _made("scores", lambda: q.new_empty(*q.shape[:3], k.shape[2]))
        out = _made("out", lambda: torch.empty_like(q))
        torch.matmul(q, k.transpose(-1, -2), out=scores)
        scores.mul_(1.0 / math.sqrt(q.shape[-1]))
        torch.matmul(scores.softmax(-1), v, out=out)
        return out


def blocks_of_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """blocks of queries"""
    return torch.cat([_attend(some, k, v) for some in q.split(128, dim=2)], dim=2)


def online_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """blocks of keys with a running maximum"""
    out, total = torch.zeros_like(q), q.new_zeros(*q.shape[:3], 1)
    largest = q.new_full((*q.shape[:3], 1), -math.inf)
    for k1, v1 in zip(k.split(256, dim=2), v.split(256, dim=2), strict=True):
        scores = q @ k1.transpose(-1, -2) / math.sqrt(q.shape[-1])
        now = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights, part = (scores - now).exp(), (largest - now).exp()
        total = total * part + weights.sum(-1, keepdim=True)
        out = out * part + weights @ v1
        largest = now
    return out / total


def one_head_after_another(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a loop over heads, into one result"""
    out = torch.empty_like(q)
    for head in range(q.shape[1]):
        out[:, head] = _attend(q[:, head], k[:, head], v[:, head])
    return out


def float64_inside(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """float64 inside"""
    return _attend(q.double(), k.double(), v.double()).to(q.dtype)


def contiguous_copies(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """copies of the inputs, as a wrapper makes them"""
    return F.scaled_dot_product_attention(*(x.clone() for x in (q, k, v)))


def with_a_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a mask that hides nothing"""
    mask = _made("mask", lambda: torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).to(q.device))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def over_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch.vmap"""
    return torch.vmap(torch.vmap(_attend))(q, k, v)


def scripted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch.jit.trace"""
    return _made("traced", lambda: torch.jit.trace(_attend, (q, k, v), check_trace=False))(q, k, v)


def without_gradients(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """inference mode of a part"""
    with torch.no_grad():
        return _attend(q, k, v)


class _Attention(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _attend(q, k, v)


def as_a_module(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a module with a hook"""

    def module() -> torch.nn.Module:
        made = _Attention()
        made.register_forward_hook(lambda _, inputs, out: out)
        return made

    return _made("module", module)(q, k, v)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        context.save_for_backward(q, k, v)
        return _attend(q, k, v)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return context.saved_tensors


def custom_function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """an autograd function of its own"""
    return _Function.apply(q, k, v)


def worker_thread(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """one other thread, that gets its work from a queue and gives it back by another"""
    work, done = _made("queues", lambda: (queue.SimpleQueue(), queue.SimpleQueue()))
    stream = torch.cuda.current_stream() if GPU else None

    def serve() -> None:
        while True:
            inputs, on = work.get()
            with torch.cuda.stream(on) if on else contextlib.nullcontext():
                done.put(_attend(*inputs))

    if "thread" not in _kept:
        _kept["thread"] = threading.Thread(target=serve, daemon=True)
        _kept["thread"].start()
    work.put(((q, k, v), stream))
    return done.get()


def recorded_ranges(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """a range for profilers"""
    with torch.profiler.record_function("attention"):
        return _attend(q, k, v)


def logsumexp(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """logsumexp"""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores - scores.logsumexp(-1, keepdim=True)).exp() @ v


def multihead_layout(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """heads side by side in memory, and back"""
    turned = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*turned).contiguous()


if GPU:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def efficient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """the memory-efficient backend"""
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v)

    def by_math(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """the math backend"""
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v)

    def compiled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """torch.compile"""
        return _made("compiled", lambda: torch.compile(_attend))(q, k, v)

    def compiled_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """torch.compile of F.scaled_dot_product_attention"""
        return _made("compiled", lambda: torch.compile(F.scaled_dot_product_attention))(q, k, v)

    def compiled_with_graphs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """torch.compile that records CUDA graphs itself"""
        made = _made("compiled", lambda: torch.compile(_attend, mode="reduce-overhead"))
        return made(q, k, v).clone()

    def replayed_graph(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """a CUDA graph, replayed on copies of the inputs of each call"""
        if "graph" not in _kept:
            inputs = [x.clone() for x in (q, k, v)]
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                _attend(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = _attend(*inputs)
            _kept["graph"] = graph, inputs, out
        graph, inputs, out = _kept["graph"]
        for into, x in zip(inputs, (q, k, v), strict=True):
            into.copy_(x)
        graph.replay()
        return out.clone()

    def graph_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """a CUDA graph of its inputs where they lie, captured again for other addresses"""
        key = tuple(x.data_ptr() for x in (q, k, v))
        if key not in _kept:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                _attend(q, k, v)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = _attend(q, k, v)
            _kept[key] = graph, out
        graph, out = _kept[key]
        graph.replay()
        return out.clone()

    def side_stream(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """another stream, which waits for the caller's, which waits for it"""
        side, own = _made("side", torch.cuda.Stream), torch.cuda.current_stream()
        side.wait_stream(own)
        with torch.cuda.stream(side):
            out = _attend(q, k, v)
        own.wait_stream(side)
        out.record_stream(own)
        return out

    def two_streams(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """half of the heads on another stream, joined by events"""
        side, own = _made("side", torch.cuda.Stream), torch.cuda.current_stream()
        out, half = torch.empty_like(q), q.shape[1] // 2
        side.wait_event(own.record_event())
        with torch.cuda.stream(side):
            out[:, :half] = _attend(q[:, :half], k[:, :half], v[:, :half])
            done = side.record_event()
        out[:, half:] = _attend(q[:, half:], k[:, half:], v[:, half:])
        own.wait_event(done)
        return out

    def synchronised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """a wait for the device in the call"""
        out = _attend(q, k, v)
        torch.cuda.synchronize()
        return out

    def reads_a_number(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """a number that goes to the host, as a check for infinities does"""
        out = _attend(q, k, v)
        if not math.isfinite(float(out.sum())):
            raise FloatingPointError("not finite")
        return out

    def timed_by_events(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """events of its own, read later"""
        start, stop = _made("events", lambda: [torch.cuda.Event(enable_timing=True) for _ in "ab"])
        start.record()
        out = _attend(q, k, v)
        stop.record()
        return out

    def through_the_host(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """a scale in pinned memory, copied to the device"""
        scale = _made("scale", lambda: torch.tensor([1.0 / math.sqrt(q.shape[-1])]).pin_memory())
        scores = q @ k.transpose(-1, -2) * scale.to(q.device, non_blocking=True)
        return scores.softmax(-1) @ v

    def workspace_of_torch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """memory that goes back to the driver in each call"""
        out = _attend(q, k, v)
        if _made("count", lambda: [0])[0] % 64 == 0:
            torch.cuda.empty_cache()
        _kept["count"][0] += 1
        return out

    def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """FlexAttention, compiled"""
        from torch.nn.attention.flex_attention import flex_attention

        made = _made("flex", lambda: torch.compile(flex_attention, dynamic=False))
        return made(q, k, v, kernel_options={"PRECISION": '"ieee"'})

    def priority_stream(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """a stream of high priority, joined"""
        side = _made("side", lambda: torch.cuda.Stream(priority=-1))
        own = torch.cuda.current_stream()
        side.wait_stream(own)
        with torch.cuda.stream(side):
            out = F.scaled_dot_product_attention(q, k, v)
        own.wait_stream(side)
        return out

    def graphed_module(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """torch.cuda.make_graphed_callables"""
        samples = tuple(x.detach().clone() for x in (q, k, v))
        made = _made("graphed", lambda: torch.cuda.make_graphed_callables(_Attention(), samples))
        return made(q, k, v).clone()

    def checkpointed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """torch.utils.checkpoint"""
        from torch.utils.checkpoint import checkpoint

        return checkpoint(_attend, q, k, v, use_reentrant=False)

    @functools.cache
    def _library_op() -> Any:
        @torch.library.custom_op("regatta_honest::attend", mutates_args=())
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return _attend(q, k, v)

        return attend

    def custom_operator(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """an operator that is registered with torch.library"""
        return _library_op()(q, k, v)
