"""The cuDNN worker: what it refuses, and its graphs' values against a stand-in."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import pytest

import support

pytest.importorskip("torch")

import torch

from plain_attention import CPU, made, right_twice
from regatta_worker.on_torch.cudnn_graphs import Execution, Graphs, band
from regatta_worker.problem.attention import Mask
from regatta_worker.protocol.channel import Unsupported

WINDOW = {"left": 4, "right": 2, "align": "top-left"}
LEFT = {"left": 4, "right": 0, "align": "bottom-right"}


class Alignment(enum.Enum):
    TOP_LEFT = 0
    BOTTOM_RIGHT = 1


class End:
    """A tensor of a graph: dimensions and strides, no data."""

    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.data_type, self.output = dim, stride, data_type, False

    def __getattr__(self, name: str) -> Any:
        """`set_output` and the others, each of which gives the tensor back."""
        if not name.startswith("set_"):
            raise AttributeError(name)

        def put(value: Any) -> End:
            setattr(self, name.removeprefix("set_"), value)
            return self

        return put


STEPS = ["validate", "build_operation_graph", "create_execution_plans", "check_support"]


class Graph:
    """The frontend's `pygraph`, which computes with torch what it was described to."""

    made = 0

    def __init__(self, **given: Any) -> None:
        assert given["handle"] == "handle"
        assert given["compute_data_type"] == "FLOAT"
        Graph.made += 1
        self.steps: list[str] = []
        self.ends: tuple[End, ...] = ()

    def tensor(self, *, name: str, dim: Any, stride: Any, data_type: Any) -> End:
        return End(dim, stride, data_type)

    def sdpa(self, q: End, k: End, v: End, *, generate_stats: bool, **options: Any) -> list[Any]:
        self.ends, self.results, self.options = (q, k, v), [End(), End()], options
        self.backward, self.stats = False, generate_stats
        return [self.results[0], self.results[1] if generate_stats else None]

    def sdpa_backward(
        self, q: End, k: End, v: End, o: End, dO: End, stats: End, **options: Any
    ) -> list[End]:
        self.ends, self.results, self.options = (
            (q, k, v, o, dO, stats),
            [End(), End(), End()],
            options,
        )
        self.backward, self.stats = True, False
        return self.results

    def __getattr__(self, name: str) -> Any:
        """The steps of building it, in their order."""
        if name not in (*STEPS, "build_plans"):
            raise AttributeError(name)
        return lambda *given: self._step(name)

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == "build_plans":
            assert self.steps == [*STEPS, name]
            self._plan_index = 1

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{index}_k24=13"

    def get_workspace_size(self) -> int:
        return 0

    def execute(self, bound: dict[End, torch.Tensor], workspace: Any, handle: Any) -> None:
        assert handle == "handle"
        assert workspace.numel() > 0
        assert "build_plans" in self.steps
        outputs = self.results[: 3 if self.backward else 1 + self.stats]
        assert set(bound) == {*self.ends, *outputs}
        assert all(end.output for end in outputs)
        for end, tensor in bound.items():
            if end.stride is not None:
                assert list(tensor.shape) == end.dim
                assert list(tensor.stride()) == end.stride
        q, k, v = (bound[end].detach().requires_grad_() for end in self.ends[:3])
        out, logsumexp = attention(q, k, v, **self.options)
        if self.backward:
            torch.testing.assert_close(bound[self.ends[3]], out)
            torch.testing.assert_close(bound[self.ends[5]], logsumexp)
            values = torch.autograd.grad(out, (q, k, v), bound[self.ends[4]])
        else:
            values = (out, logsumexp)
        for end, value in zip(outputs, values, strict=False):
            bound[end].copy_(value.detach())


def attention(
    q: Any, k: Any, v: Any, *, attn_scale: float, name: str, diagonal_alignment: Any = None,
    diagonal_band_left_bound: int | None = None, diagonal_band_right_bound: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """By the rules of the frontend: the left bound is the first distance that is hidden."""
    left = None if diagonal_band_left_bound is None else diagonal_band_left_bound - 1
    align = "bottom-right" if diagonal_alignment is Alignment.BOTTOM_RIGHT else "top-left"
    mask = Mask(left, diagonal_band_right_bound, align)
    group, seq_q, seq_k = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    rows, columns = torch.arange(seq_q)[:, None], torch.arange(seq_k)[None, :]
    seen = mask.visible(rows, columns, mask.offset(seq_q, seq_k))
    scores = (q @ k.transpose(-1, -2) * attn_scale).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


STAND_IN = SimpleNamespace(
    pygraph=Graph,
    data_type=SimpleNamespace(FLOAT="FLOAT", HALF="HALF", BFLOAT16="BFLOAT16"),
    heur_mode=SimpleNamespace(A="A", FALLBACK="FALLBACK"),
    diagonal_alignment=Alignment,
)


class FloatGraphs(Graphs):
    """In float32, which the stand-in computes more exactly than cuDNN's halves."""

    done = True

    def _io_type(self) -> Any:
        return "FLOAT"

    def idle(self) -> bool:
        return self.done and super().idle()


def execution(each: bool = False, **axes: Any) -> tuple[Any, Any, FloatGraphs, Execution]:
    problem, tensors = made(**axes)
    graphs = FloatGraphs(STAND_IN, "handle", problem, CPU)
    return problem, tensors, graphs, Execution(graphs, "handle", problem, each)


def checked(each: bool = False, **axes: Any) -> Any:
    problem, tensors, _, made_of = execution(each, **axes)
    built = made_of.build(tensors)
    right_twice(problem, tensors, built)
    return built


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_values(direction: str, layout: str) -> None:
    axes: dict[str, Any] = {"direction": direction, "layout": layout}
    for mask in (support.FULL, support.CAUSAL, support.CAUSAL_BR, LEFT):
        checked(seq_q=9, seq_k=24, kv_heads=2, head_dim_v=8, mask=mask, **axes)
    checked(mask=WINDOW, **axes)


@pytest.mark.parametrize(("direction", "graphs"), [("forward", 1), ("backward", 1), ("both", 2)])
def test_plans_are_made_once_or_in_each_call(direction: str, graphs: int) -> None:
    for each, expected in ((False, 0), (True, graphs)):
        call = checked(each, direction=direction)
        before = Graph.made
        call()
        assert Graph.made - before == expected


def test_a_plan_lives_until_the_device_is_done_with_it() -> None:
    _, tensors, graphs, made_of = execution(each=True)
    call = made_of.build(tensors)
    graphs.done = False
    for _ in range(3):
        call()
    first, second = made_of._retired
    assert first is not second
    assert made_of._plans["forward"] not in (first, second)
    graphs.done = True
    call()
    assert made_of._retired == []


def test_on_a_square_both_alignments_are_the_top_left() -> None:
    problem, _ = made(mask=support.CAUSAL_BR)
    bounds = {"diagonal_alignment": Alignment.TOP_LEFT, "diagonal_band_right_bound": 0}
    assert band(STAND_IN, problem) == bounds


def test_packed_batches_are_refused() -> None:
    problem, _ = made(varlen={"q": [3, 24], "k": [5, 24]})
    with pytest.raises(Unsupported, match="ragged"):
        Graphs(STAND_IN, "handle", problem, CPU)
