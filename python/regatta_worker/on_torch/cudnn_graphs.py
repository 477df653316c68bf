"""Attention as graphs of the cuDNN frontend: described, planned, and then executed.

Dimensions are cuDNN's, `[batch, heads, seq, width]`, over the caller's memory: strides say
the layout, and nothing is copied. A plan is for one shape: another length needs another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from regatta_worker.on_torch.case import DTYPES, Built, Results, Tensors
from regatta_worker.problem.attention import GRADIENTS, Problem
from regatta_worker.protocol.channel import Unsupported

DATA_TYPES = {"f16": "HALF", "bf16": "BFLOAT16"}


def band(cudnn: Any, problem: Problem) -> dict[str, Any]:
    """The mask as a band along a diagonal.

    cuDNN's left bound counts the query's own position, its right bound does not.
    """
    mask = problem.mask
    if mask.is_full:
        return {}
    corner = "TOP_LEFT"
    # More kernels take the top left, and on a square both mean the same.
    if mask.align == "bottom-right" and not problem.is_square:
        corner = "BOTTOM_RIGHT"
    found = {"diagonal_alignment": getattr(cudnn.diagonal_alignment, corner)}
    if mask.left is not None:
        found["diagonal_band_left_bound"] = mask.left + 1
    if mask.right is not None:
        found["diagonal_band_right_bound"] = mask.right
    return found


@dataclass(frozen=True)
class Planned:
    """A graph with an execution plan."""

    graph: Any
    ends: Mapping[str, Any]
    """The graph's inputs and outputs by name."""
    workspace: torch.Tensor
    name: str | None = None
    """The plan that the frontend settled on, where it tells."""

    def execute(self, handle: Any, given: Tensors) -> None:
        """Queues it on the handle's stream; outputs are among what is given."""
        bound = {self.ends[name]: tensor for name, tensor in given.items()}
        self.graph.execute(bound, self.workspace, handle=handle)


class Graphs:
    """Forward and backward of one problem."""

    def __init__(self, cudnn: Any, handle: Any, problem: Problem, device: torch.device) -> None:
        if problem.varlen:
            raise Unsupported("graphs with ragged offsets are not built here: no packed batches")
        self._cudnn, self._handle = cudnn, handle
        self._problem, self._device = problem, device
        self._options = {"attn_scale": problem.head_dim**-0.5, **band(cudnn, problem)}

    def plan_forward(self, stats: bool) -> Planned:
        """`out`, and with `stats` what backward needs of the softmax."""
        graph = self._graph()
        ends = {name: self._tensor(graph, name) for name in ("q", "k", "v")}
        out, logsumexp = graph.sdpa(**ends, generate_stats=stats, name="sdpa", **self._options)
        ends["out"] = self._output(out, "out")
        if stats:
            ends["stats"] = logsumexp.set_output(True).set_data_type(self._cudnn.data_type.FLOAT)
        return self._planned(graph, ends)

    def plan_backward(self) -> Planned:
        """`dq`, `dk`, `dv`."""
        graph = self._graph()
        names = ("q", "k", "v", "out", "dout", "stats")
        ends = {name: self._tensor(graph, name) for name in names}
        gradients = graph.sdpa_backward(
            q=ends["q"],
            k=ends["k"],
            v=ends["v"],
            o=ends["out"],
            dO=ends["dout"],
            stats=ends["stats"],
            name="sdpa_backward",
            **self._options,
        )
        for name, gradient in zip(GRADIENTS, gradients, strict=True):
            ends[name] = self._output(gradient, name)
        return self._planned(graph, ends)

    def empty(self, name: str) -> torch.Tensor:
        """Memory for a tensor of cuDNN's dimensions, in the caller's layout."""
        if name == "stats":
            return torch.empty(self._dims(name), dtype=torch.float32, device=self._device)
        batch, seq, heads, width = self._problem.shape(name)
        dtype = DTYPES[self._problem.dtype]
        if self._problem.layout == "bhsd":
            return torch.empty((batch, heads, seq, width), dtype=dtype, device=self._device)
        held = torch.empty((batch, seq, heads, width), dtype=dtype, device=self._device)
        return held.transpose(1, 2)

    def idle(self) -> bool:
        """Whether the device has done all that was queued on torch's current stream."""
        if self._device.type != "cuda":
            return True
        return bool(torch.cuda.current_stream(self._device).query())

    def _graph(self) -> Any:
        types = self._cudnn.data_type
        return self._cudnn.pygraph(
            io_data_type=self._io_type(),
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            handle=self._handle,
        )

    def _io_type(self) -> Any:
        return getattr(self._cudnn.data_type, DATA_TYPES[self._problem.dtype])

    def _dims(self, name: str) -> list[int]:
        if name == "stats":
            batch, seq, heads, _ = self._problem.shape("out")
            return [batch, heads, seq, 1]
        batch, seq, heads, width = self._problem.shape(name)
        return [batch, heads, seq, width]

    def _strides(self, name: str) -> list[int]:
        _, heads, seq, width = self._dims(name)
        if self._problem.layout == "bhsd" or name == "stats":
            return [heads * seq * width, seq * width, width, 1]
        return [heads * seq * width, width, heads * width, 1]

    def _tensor(self, graph: Any, name: str) -> Any:
        kind = self._cudnn.data_type.FLOAT if name == "stats" else self._io_type()
        return graph.tensor(
            name=name, dim=self._dims(name), stride=self._strides(name), data_type=kind
        )

    def _output(self, end: Any, name: str) -> Any:
        return end.set_output(True).set_dim(self._dims(name)).set_stride(self._strides(name))

    def _planned(self, graph: Any, ends: Mapping[str, Any]) -> Planned:
        modes = self._cudnn.heur_mode
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([modes.A, modes.FALLBACK])
        graph.check_support()
        graph.build_plans()
        # At least a byte, so that there is an address.
        size = max(graph.get_workspace_size(), 1)
        workspace = torch.empty(size, dtype=torch.uint8, device=self._device)
        return Planned(graph, ends, workspace, plan_name(graph))


def plan_name(graph: Any) -> str | None:
    """The engine and the knobs of the plan that was built, in the frontend's words."""
    # Which of its plans that is, no public function says (frontend 1.32).
    index = getattr(graph, "_plan_index", None)
    if not isinstance(index, int):
        return None
    with contextlib.suppress(Exception):
        return str(graph.get_plan_name_at_index(index))
    return None


class Execution:
    """One call: graphs planned before it, or in each call as for a length never seen before."""

    def __init__(self, graphs: Graphs, handle: Any, problem: Problem, each: bool) -> None:
        self._graphs, self._handle, self._problem = graphs, handle, problem
        self._each = each
        self._plans: dict[str, Planned] = {}
        self._retired: list[Planned] = []
        """Replaced, and perhaps not executed yet: a plan must outlive what it has queued."""

    def build(self, tensors: Tensors) -> Built:
        """The call. Only what it holds is planned in it: for backward, forward has been done."""
        direction, stats = self._problem.direction, self._problem.has_backward
        names = ("q", "k", "v", "dout") if stats else ("q", "k", "v")
        given = {name: tensors[name].transpose(1, 2) for name in names}
        if direction == "backward":
            self._plan_forward()
            saved = self._empty_forward()
            self._execute_forward(given, saved)
            if not self._each:
                self._plan_backward()
            return Built(
                lambda: self._run_backward(given, saved),
                refresh=lambda: self._execute_forward(given, saved),
            )
        if not self._each:
            self._plan_forward()
            if stats:
                self._plan_backward()
        if direction == "forward":
            return Built(lambda: _logical(self._run_forward(given)["out"]))

        def both() -> Results:
            saved = self._run_forward(given)
            return (*_logical(saved["out"]), *self._run_backward(given, saved))

        return Built(both)

    def names(self) -> dict[str, str]:
        """What was planned, `forward_plan` and `backward_plan`, where the frontend tells."""
        plans = self._plans.items()
        return {f"{direction}_plan": plan.name for direction, plan in plans if plan.name}

    def _plan_forward(self) -> None:
        self._replace("forward", self._graphs.plan_forward(self._problem.has_backward))

    def _plan_backward(self) -> None:
        self._replace("backward", self._graphs.plan_backward())

    def _replace(self, name: str, planned: Planned) -> None:
        if name in self._plans:
            self._retired.append(self._plans[name])
        self._plans[name] = planned
        if self._retired and self._graphs.idle():
            self._retired.clear()

    def _run_forward(self, given: Tensors) -> Tensors:
        if self._each:
            self._plan_forward()
        saved = self._empty_forward()
        self._execute_forward(given, saved)
        return saved

    def _empty_forward(self) -> Tensors:
        names = ("out", "stats") if self._problem.has_backward else ("out",)
        return {name: self._graphs.empty(name) for name in names}

    def _execute_forward(self, given: Tensors, saved: Tensors) -> None:
        inputs = {name: given[name] for name in ("q", "k", "v")}
        self._plans["forward"].execute(self._handle, inputs | saved)

    def _run_backward(self, given: Tensors, saved: Tensors) -> Results:
        if self._each:
            self._plan_backward()
        gradients = {name: self._graphs.empty(name) for name in GRADIENTS}
        self._plans["backward"].execute(self._handle, given | saved | gradients)
        return _logical(*gradients.values())


def _logical(*tensors: torch.Tensor) -> Results:
    return tuple(tensor.transpose(1, 2) for tensor in tensors)
