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
    attention = ProblemGraphs(cudnn, handle, case.problem, case.device, each)
    call = on_stream(lambda: attention.build(case.tensors))()
    if not each:
        # A plan in each call is not a choice of the case.
        case.effective |= attention.names()
        case.tuned = tuple(attention.names())
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


class ProblemGraphs:
    """Graphs of one problem, planned before the call, or in each call as for a new length."""

    def __init__(
        self, cudnn: Any, handle: Any, problem: Problem, device: torch.device, each: bool
    ) -> None:
        self._cudnn, self._handle, self._problem, self._device = cudnn, handle, problem, device
        self._options = {"attn_scale": problem.scale, **band(cudnn, problem)}
        self._each = each
        self.plans: dict[str, Planned] = {}
        """By direction."""
        self.retired: list[Planned] = []
        """Replaced, and perhaps not executed yet: a plan must outlive what it has queued."""

    def build(self, tensors: Tensors) -> Call:
        """The call. Only what it holds is planned in it: for backward, forward has been done."""
        given = {name: tensor.transpose(1, 2) for name, tensor in tensors.items()}
        direction, stats = self._problem.direction, self._problem.has_backward
        outputs = ("out", "stats") if stats else ("out",)
        if direction == "backward" or not self._each:
            self._plan("forward")
        if stats and not self._each:
            self._plan("backward")

        def forward() -> Tensors:
            if self._each:
                self._plan("forward")
            return self._execute("forward", given, outputs)

        def backward(of: Tensors) -> Results:
            if self._each:
                self._plan("backward")
            gradients = self._execute("backward", given | of, GRADIENTS)
            return _logical(*gradients.values())

        def both() -> Results:
            found = forward()
            return (*_logical(found["out"]), *backward(found))

        if direction == "backward":
            saved = self._execute("forward", given, outputs)

            def refresh() -> None:
                self._execute("forward", given | saved)

            return Call(lambda: backward(saved), refresh)
        return Call(both if stats else lambda: _logical(forward()["out"]))

    def names(self) -> dict[str, str]:
        """The plans, `forward_plan` and `backward_plan`, if the frontend names them."""
        return {f"{direction}_plan": of.name for direction, of in self.plans.items() if of.name}

    def _plan(self, direction: str) -> None:
        types, stats = self._cudnn.data_type, self._problem.has_backward
        graph = self._cudnn.pygraph(
            io_data_type=getattr(types, DATA_TYPES[self._problem.dtype]),
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            handle=self._handle,
        )
        forward = direction == "forward"
        names = ("q", "k", "v") if forward else ("q", "k", "v", "out", "dout", "stats")
        ends = {name: self._input(graph, name) for name in names}
        if forward:
            results = graph.sdpa(**ends, generate_stats=stats, name="sdpa", **self._options)
            outputs = ("out", "stats")[: 1 + stats]
        else:
            given = {{"out": "o", "dout": "dO"}.get(name, name): end for name, end in ends.items()}
            results = graph.sdpa_backward(**given, name="sdpa_backward", **self._options)
            outputs = GRADIENTS
        for name, end in zip(outputs, results, strict=False):
            end.set_output(True)
            if name == "stats":
                ends[name] = end.set_data_type(types.FLOAT)
            else:
                of = self._memory(name, "meta")
                ends[name] = end.set_dim(list(of.shape)).set_stride(list(of.stride()))
        planned = self._planned(graph, ends)
        if direction in self.plans:
            self.retired.append(self.plans[direction])
        self.plans[direction] = planned
        if self.retired and self._idle():
            self.retired.clear()

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

    def _execute(self, direction: str, given: Tensors, outputs: tuple[str, ...] = ()) -> Tensors:
        """Queues a graph on the handle's stream, and gives the outputs that it makes."""
        plan, made = self.plans[direction], {name: self._memory(name) for name in outputs}
        tensors = given | made
        bound = {end: tensors[name] for name, end in plan.ends.items()}
        plan.graph.execute(bound, plan.workspace, handle=self._handle)
        return made

    def _idle(self) -> bool:
        """True if the device has done all that was queued on torch's current stream."""
        if self._device.type != "cuda":
            return True
        return bool(torch.cuda.current_stream(self._device).query())

    def _memory(self, name: str, device: Any = None) -> torch.Tensor:
        """Memory for a tensor of cuDNN's dimensions, in the caller's layout."""
        problem, device = self._problem, device or self._device
        if name == "stats":
            batch, seq, heads, _ = problem.shape("out")
            return torch.empty((batch, heads, seq, 1), dtype=torch.float32, device=device)
        lying = torch.empty(problem.laid_out(name), dtype=DTYPES[problem.dtype], device=device)
        logical: torch.Tensor = problem.turned(lying)
        return logical.transpose(1, 2)

    def _input(self, graph: Any, name: str) -> Any:
        kind = "FLOAT" if name == "stats" else DATA_TYPES[self._problem.dtype]
        of = self._memory(name, "meta")
        return graph.tensor(
            name=name,
            dim=list(of.shape),
            stride=list(of.stride()),
            data_type=getattr(self._cudnn.data_type, kind),
        )


def plan_name(graph: Any) -> str | None:
    """The engine and the knobs of the plan that was built, in the frontend's words."""
    # Which of its plans that is, no public function says (frontend 1.32).
    index = getattr(graph, "_plan_index", None)
    if not isinstance(index, int):
        return None
    with contextlib.suppress(Exception):
        return str(graph.get_plan_name_at_index(index))
    return None


def _logical(*tensors: torch.Tensor) -> Results:
    return tuple(tensor.transpose(1, 2) for tensor in tensors)
