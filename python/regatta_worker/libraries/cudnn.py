"""Library `cudnn`: attention through the cuDNN frontend, below PyTorch's and JAX's use of it.

A graph is described, planned, and then executed. Dimensions are cuDNN's, `[batch, heads, seq,
width]`, over the caller's memory: strides say the layout, and nothing is copied. A plan is for one
shape: another length needs another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from regatta_worker.on_torch.case import DTYPES, Call, Results, Tensors, TorchCase
from regatta_worker.on_torch.library import Library
from regatta_worker.problem.attention import GRADIENTS, Problem

DATA_TYPES = {"f16": "HALF", "bf16": "BFLOAT16"}
Done = TypeVar("Done")

WORKER = Library(
    "cudnn",
    packages=("nvidia-cudnn-frontend",),
    # It finds cuDNN where torch has loaded it.
    modules=("cudnn",),
    refusals=(RuntimeError, ValueError),
    module_refusals=("cudnnGraphNotSupportedError",),
    # The cuDNN that the frontend really uses.
    module_versions=lambda cudnn: {"cudnn": str(cudnn.backend_version())},
)

_handle: list[Any] = []
"""cuDNN's, one a process."""


@WORKER.variant(
    "graph",
    "pygraph.sdpa and sdpa_backward",
    packed=False,
    parameters={"plan": ("once", "each")},
)
def graph(case: TorchCase) -> Call:
    """A graph for forward, another for backward; planned here, or in each call."""
    cudnn = case.module
    if not _handle:
        _handle.append(cudnn.create_handle())
    (handle,) = _handle

    def on_stream(call: Callable[[], Done]) -> Callable[[], Done]:
        """The call on torch's current stream: that of a capture is another."""

        def followed() -> Done:
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            return call()

        return followed

    each = case.param("plan", "once") == "each"
    execution = Execution(Graphs(cudnn, handle, case.problem, case.device), each)
    call = on_stream(lambda: execution.build(case.tensors))()
    if not each:
        # A plan in each call is no choice of the case's.
        case.effective |= execution.names()
        case.tuned = tuple(execution.names())
    refresh = call.refresh and on_stream(call.refresh)
    return Call(on_stream(call.run), refresh, varies=each)


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
        self._cudnn, self.handle = cudnn, handle
        self.problem, self._device = problem, device
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
        given = {"o": ends["out"], "dO": ends["dout"], "stats": ends["stats"]}
        given |= {name: ends[name] for name in ("q", "k", "v")}
        gradients = graph.sdpa_backward(**given, name="sdpa_backward", **self._options)
        for name, gradient in zip(GRADIENTS, gradients, strict=True):
            ends[name] = self._output(gradient, name)
        return self._planned(graph, ends)

    def empty(self, name: str) -> torch.Tensor:
        """Memory for a tensor of cuDNN's dimensions, in the caller's layout."""
        dtype = torch.float32 if name == "stats" else DTYPES[self.problem.dtype]
        dims, strides = self._dims(name), self._strides(name)
        return torch.empty_strided(dims, strides, dtype=dtype, device=self._device)

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
            handle=self.handle,
        )

    def _io_type(self) -> Any:
        return getattr(self._cudnn.data_type, DATA_TYPES[self.problem.dtype])

    def _dims(self, name: str) -> list[int]:
        batch, seq, heads, width = self.problem.shape("out" if name == "stats" else name)
        return [batch, heads, seq, 1 if name == "stats" else width]

    def _strides(self, name: str) -> list[int]:
        _, heads, seq, width = self._dims(name)
        if self.problem.layout == "bhsd" or name == "stats":
            return [heads * seq * width, seq * width, width, 1]
        return [heads * seq * width, width, heads * width, 1]

    def _tensor(self, graph: Any, name: str) -> Any:
        kind = self._cudnn.data_type.FLOAT if name == "stats" else self._io_type()
        dims, strides = self._dims(name), self._strides(name)
        return graph.tensor(name=name, dim=dims, stride=strides, data_type=kind)

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

    def __init__(self, graphs: Graphs, each: bool) -> None:
        self._graphs, self._problem, self._each = graphs, graphs.problem, each
        self._plans: dict[str, Planned] = {}
        self._retired: list[Planned] = []
        """Replaced, and perhaps not executed yet: a plan must outlive what it has queued."""

    def build(self, tensors: Tensors) -> Call:
        """The call. Only what it holds is planned in it: for backward, forward has been done."""
        given = {name: tensor.transpose(1, 2) for name, tensor in tensors.items()}
        direction, stats = self._problem.direction, self._problem.has_backward
        outputs = ("out", "stats") if stats else ("out",)
        if direction == "backward":
            self._plan("forward")
            saved = self._empty(outputs)
            self._execute("forward", given, saved)
        if not self._each and direction != "backward":
            self._plan("forward")
        if not self._each and stats:
            self._plan("backward")

        def forward() -> Tensors:
            if self._each:
                self._plan("forward")
            found = self._empty(outputs)
            self._execute("forward", given, found)
            return found

        def backward(of: Tensors) -> Results:
            if self._each:
                self._plan("backward")
            gradients = self._empty(GRADIENTS)
            self._execute("backward", given | of, gradients)
            return _logical(*gradients.values())

        def both() -> Results:
            found = forward()
            return (*_logical(found["out"]), *backward(found))

        if direction == "backward":
            return Call(lambda: backward(saved), lambda: self._execute("forward", given, saved))
        return Call(both if stats else lambda: _logical(forward()["out"]))

    def names(self) -> dict[str, str]:
        """What was planned, `forward_plan` and `backward_plan`, where the frontend says."""
        plans = self._plans.items()
        return {f"{direction}_plan": plan.name for direction, plan in plans if plan.name}

    def _plan(self, direction: str) -> None:
        graphs = self._graphs
        planned = (
            graphs.plan_forward(self._problem.has_backward)
            if direction == "forward"
            else graphs.plan_backward()
        )
        if direction in self._plans:
            self._retired.append(self._plans[direction])
        self._plans[direction] = planned
        if self._retired and graphs.idle():
            self._retired.clear()

    def _empty(self, names: tuple[str, ...]) -> Tensors:
        return {name: self._graphs.empty(name) for name in names}

    def _execute(self, direction: str, given: Tensors, outputs: Tensors) -> None:
        """Queues a graph on the handle's stream."""
        names = ("q", "k", "v") if direction == "forward" else given
        self._plans[direction].execute(
            self._graphs.handle, {name: given[name] for name in names} | outputs
        )


def _logical(*tensors: torch.Tensor) -> Results:
    return tuple(tensor.transpose(1, 2) for tensor in tensors)
