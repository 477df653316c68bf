"""Lists all private names of libraries that the worker uses, with the use of each.

A release may rename one without notice: a count, a part of the first call or an effective value is
then missing, without an error. `tests/test_private.py` prints which names exist in the installed
libraries.
"""

from __future__ import annotations

from typing import NamedTuple


class Private(NamedTuple):
    """A name that its library does not promise to keep."""

    package: str
    """The distribution that contains it."""
    module: str
    """A module, a namespace of operators, or a shared library."""
    name: str
    used_for: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


NUMBA_COUNTS = Private("numba", "numba.core.runtime", "_nrt_python", "numba_allocations")
TRITON_RUN = Private(
    "triton", "triton.runtime.autotuner", "Autotuner.run", "calls.triton_autotune; tuned parameters"
)
TRITON_TUNE = Private(
    "triton", "triton.runtime.autotuner", "Autotuner._bench", "first call: tuning"
)
TRITON_COMPILE = Private(
    "triton",
    "triton.runtime.jit",
    "JITFunction._do_compile",
    "calls.triton_compile; first call: compiling",
)
TRITON_LOAD = Private(
    "triton", "triton.compiler.compiler", "CompiledKernel._init_handles", "first call: loading"
)
TORCH_TRACE = Private("torch", "torch._dynamo.convert_frame", "_compile", "first call: tracing")
TORCH_COMPILE = Private(
    "torch",
    "torch._dynamo.output_graph",
    "OutputGraph.call_user_compiler",
    "calls.torch_compile; first call: compiling",
)
TORCH_COMPILED = Private(
    "torch", "torch._dynamo.eval_frame", "cached_backends", "whether operators can be counted"
)
JAX_COMPILE = Private("jax", "jax._src.compiler", "compile_or_get_cached", "calls.jax_compile")
FLASHINFER_BUILD = Private(
    "flashinfer-python", "flashinfer.jit.core", "JitSpec.build", "first call: compiling"
)
FLASHINFER_LOAD = Private(
    "flashinfer-python", "flashinfer.jit.core", "JitSpec.load", "first call: loading"
)
CUPY_COMPILE = Private(
    "cupy-cuda13x", "cupy.cuda.compiler", "compile_using_nvrtc", "first call: compiling"
)
CUTLASS_BACKWARD = Private(
    "torch", "libtorch_cuda.so", "fmha_cutlassB_*", "effective num_splits_key: its grid's x"
)

CUTLASS_SPLITS = {"num_splits_key": (CUTLASS_BACKWARD.name, 0)}
"""The grid of the memory-efficient backward kernel is (splits of the keys, heads, batch)."""

ATEN = "torch.ops.aten"
DISPATCH = "torch.utils._python_dispatch"
SELECTION = "transformer_engine.pytorch.attention.dot_product_attention.dot_product_attention"

PRIVATE = (
    *(NUMBA_COUNTS, TRITON_RUN, TRITON_TUNE, TRITON_COMPILE, TRITON_LOAD),
    *(TORCH_TRACE, TORCH_COMPILE, TORCH_COMPILED, JAX_COMPILE),
    *(FLASHINFER_BUILD, FLASHINFER_LOAD, CUPY_COMPILE, CUTLASS_BACKWARD),
    Private("triton", "triton.testing", "Mark._run", "scripts: perf_report without plots"),
    Private(
        "torch",
        "torch.utils.benchmark.utils.timer",
        "Timer._task_spec",
        "scripts: a timer's statement",
    ),
    Private("torch", DISPATCH, "TorchDispatchMode", "counts of operators"),
    Private("torch", DISPATCH, "TorchDispatchMode._should_skip_dynamo", "no import of Dynamo"),
    Private("torch", "torch._ops", "OpOverload._schema", "names of operators"),
    Private("torch", "torch.cuda", "_sleep", "results that are there before their stream"),
    Private("torch", ATEN, "_efficient_attention_forward", "torch/efficient"),
    Private("torch", ATEN, "_efficient_attention_backward", "torch/efficient"),
    Private("torch", ATEN, "_flash_attention_forward", "torch/flash"),
    Private("torch", ATEN, "_flash_attention_backward", "torch/flash"),
    Private(
        "torch",
        "torch.distributed._symmetric_memory",
        "enable_symm_mem_for_group",
        "sequence_parallel/symm-mem",
    ),
    Private("fla-core", "fla.ops.attn", "parallel_attn", "fla/parallel: in no document of theirs"),
    Private("xformers", "xformers.ops.fmha", "_dispatch_fw", "effective forward_operator"),
    Private("xformers", "xformers.ops.fmha", "_dispatch_bw", "effective backward_operator"),
    Private("xformers", "xformers.ops.fmha.cutlass", "BwOp.OPERATOR", "num_splits_key"),
    Private("flash-attn-4", "flash_attn.cute.interface", "_flash_attn_fwd", "flash_attn/fa4"),
    Private("flash-attn-4", "flash_attn.cute.interface", "_flash_attn_bwd", "flash_attn/fa4"),
    Private(
        "flashinfer-python",
        "flashinfer.utils",
        "determine_attention_backend",
        "effective backend of flashinfer/*",
    ),
    Private(
        "nvidia-cudnn-frontend",
        "cudnn._pygraph",
        "pygraph._plan_index",
        "effective plans of cudnn/*",
    ),
    Private("transformer-engine", SELECTION, "_attention_backends", "effective backend of TE"),
)
