"""The cuDNN worker: what it refuses, and its graphs' values against a stand-in."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import pytest

import support

pytest.importorskip("torch")

import torch

from regatta_worker.on_torch.cudnn_graphs import Execution, Graphs, band
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.reference import Arrays, ReferenceCache
from regatta_worker.protocol.channel import Unsupported

CPU = torch.device("cpu")
WINDOW = {"left": 4, "right": 2, "align": "top-left"}
LEFT = {"left": 4, "right": 0, "align": "bottom-right"}


class Alignment(enum.Enum):
    TOP_LEFT = 0
    BOTTOM_RIGHT = 1


class End:
    """A tensor of a graph: dimensions and strides, no data."""

    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.data_type, self.output = dim, stride, data_type, False

    def set_output(self, value: bool) -> End:
        self.output = value
        return self

    def set_dim(self, dim: list[int]) -> End:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> End:
        self.stride = stride
        return self

    def set_data_type(self, data_type: Any) -> End:
        self.data_type = data_type
        return self


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

    def validate(self) -> None:
        self.steps.append("validate")

    def build_operation_graph(self) -> None:
        self.steps.append("build_operation_graph")

    def create_execution_plans(self, modes: list[str]) -> None:
        self.steps.append("create_execution_plans")

    def check_support(self) -> None:
        self.steps.append("check_support")

    def build_plans(self) -> None:
        assert self.steps == STEPS
        self.steps.append("build_plans")

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
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    attn_scale: float,
    name: str,
    diagonal_alignment: Alignment = Alignment.TOP_LEFT,
    diagonal_band_left_bound: int | None = None,
    diagonal_band_right_bound: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """By the rules of the frontend: the left bound is the first distance that is hidden."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * attn_scale
    bottom_right = diagonal_alignment is Alignment.BOTTOM_RIGHT
    offset = k.shape[2] - q.shape[2] if bottom_right else 0
    rows = torch.arange(q.shape[2])[:, None] + offset
    columns = torch.arange(k.shape[2])[None, :]
    if diagonal_band_left_bound is not None:
        scores = scores.masked_fill(columns <= rows - diagonal_band_left_bound, -torch.inf)
    if diagonal_band_right_bound is not None:
        scores = scores.masked_fill(columns > rows + diagonal_band_right_bound, -torch.inf)
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


class TestValues:
    def right(self, each: bool = False, **axes: Any) -> Any:
        problem = Problem.from_wire(support.wire(**axes))
        tensors = {
            name: inputs.torch_input(problem, name, 3, torch.float32, CPU)
            for name in inputs.TENSORS
        }
        graphs = FloatGraphs(STAND_IN, "handle", problem, CPU)
        built = Execution(graphs, "handle", problem, each).build(tensors)
        for seed in (3, 4):
            if seed != 3:
                support.put(seed, tensors, {}, built.refresh)
            exact = ReferenceCache(Arrays.of_torch(CPU)).of(problem, seed, tensors)
            for name, value in zip(problem.results, built(), strict=True):
                assert tuple(value.shape) == problem.shape(name)
                expected = torch.as_tensor(exact[name]).view(value.shape)
                torch.testing.assert_close(value.double(), expected, atol=1e-5, rtol=1e-5)
        return built

    def test_directions_masks_and_layouts(self) -> None:
        for direction in ("forward", "backward", "both"):
            for layout in ("bshd", "bhsd"):
                for mask in (support.FULL, support.CAUSAL, support.CAUSAL_BR, LEFT):
                    axes: dict[str, Any] = {
                        "direction": direction,
                        "layout": layout,
                        "mask": mask,
                    }
                    self.right(seq_q=9, seq_k=24, kv_heads=2, head_dim_v=8, **axes)

    def test_windows_on_both_sides(self) -> None:
        self.right(mask=WINDOW, direction="both")

    def test_plans_are_made_once_or_in_each_call(self) -> None:
        for direction, graphs in (("forward", 1), ("backward", 1), ("both", 2)):
            once = self.right(each=False, direction=direction)
            each = self.right(each=True, direction=direction)
            for call, expected in ((once, 0), (each, graphs)):
                before = Graph.made
                call()
                assert Graph.made - before == expected, direction

    def test_a_plan_lives_until_the_device_is_done_with_it(self) -> None:
        problem = Problem.from_wire(support.wire())
        tensors = {
            name: inputs.torch_input(problem, name, 3, torch.float32, CPU)
            for name in ("q", "k", "v")
        }
        graphs = FloatGraphs(STAND_IN, "handle", problem, CPU)
        execution = Execution(graphs, "handle", problem, each=True)
        call = execution.build(tensors)
        graphs.done = False
        for _ in range(3):
            call()
        first, second = execution._retired
        assert first is not second
        assert execution._plans["forward"] not in (first, second)
        graphs.done = True
        call()
        assert execution._retired == []

    def test_on_a_square_both_alignments_are_the_top_left(self) -> None:
        problem = Problem.from_wire(support.wire(mask=support.CAUSAL_BR))
        assert band(STAND_IN, problem) == {
            "diagonal_alignment": Alignment.TOP_LEFT,
            "diagonal_band_right_bound": 0,
        }

    def test_packed_batches_are_refused(self) -> None:
        problem = Problem.from_wire(support.wire(varlen={"q": [3, 24], "k": [5, 24]}))
        with pytest.raises(Unsupported, match="ragged"):
            Graphs(STAND_IN, "handle", problem, CPU)
