"""Libraries on torch: calls by value, what libraries are given and refuse, and what is not here."""

import contextlib
import functools
import io
import sys
import types
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import create_mask, flex_attention

from regatta_worker.census.private import CUTLASS_SPLITS
from regatta_worker.libraries import (
    cudnn,
    fla,
    flash_attn,
    flashinfer,
    transformer_engine,
    xformers,
)
from regatta_worker.libraries import torch as torch_library
from regatta_worker.on_torch.case import DTYPES, Access, TorchCase
from regatta_worker.on_torch.library import Library, TorchWorker
from regatta_worker.problem import inputs
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import Mask, Problem
from regatta_worker.protocol.channel import Failed, Unsupported

RAGGED = {"q": [3, 24, 7], "k": [5, 24, 16]}
RAGGED_SELF = {"q": [3, 24], "k": [3, 24]}
ALL = ("forward", "backward", "both")
CPU = torch.device("cpu")


def window(left: int | None, right: int | None, align: str = "bottom-right") -> dict[str, Any]:
    return {"left": left, "right": right, "align": align}


BOTTOM_RIGHT: list[dict[str, Any]] = [
    support.FULL,
    support.CAUSAL_BR,
    window(5, 2),
    window(3, 0),
    window(None, 4),
    window(4, None),
]


# Calls of torch's own by value, on a CPU.


def sdpa(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    heads = (x.transpose(-2, -3) for x in (q, k, v))
    out = F.scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True)
    return out.transpose(-2, -3)


def apart(case: TorchCase) -> Any:
    """Operators without autograd; a packed batch is one row."""

    def forward(q: Any, k: Any, v: Any) -> Any:
        case.effective["strides"] = q.stride()
        return sdpa(q, k, v), "saved"

    def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, saved: Any) -> Any:
        assert saved == "saved"
        torch.testing.assert_close(out, sdpa(q, k, v))
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(sdpa(*inputs), inputs, dout)

    return case.operators(forward, backward, batched=True)


def flex(case: TorchCase) -> Any:
    """On a CPU FlexAttention has no backward: then the same mask by SDPA."""

    def attend(q: Any, k: Any, v: Any, block_mask: Any, **_: Any) -> Any:
        size = (q.shape[2], k.shape[2])
        mask = None if block_mask is None else create_mask(block_mask.mask_mod, 1, 1, *size, CPU)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    return torch_library.flex_call(case, attend if case.problem.has_backward else flex_attention)


def varlen_attn(
    q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, most_q: int, most_k: int,
    window_size: tuple[int, int] = (-1, -1),
) -> Any:  # fmt: skip
    """By its documentation, FlashAttention's alignment with it."""
    left, right = (None if side < 0 else side for side in window_size)
    mask, outs = Mask(left, right, "bottom-right"), []
    parts = (x.split(starts.diff().tolist()) for x, starts in ((q, starts_q), (k, starts_k)))
    for of_q, of_k, of_v in zip(*parts, v.split(starts_k.diff().tolist()), strict=True):
        assert len(of_q) <= most_q and len(of_k) <= most_k
        rows, columns = torch.arange(len(of_q))[:, None], torch.arange(len(of_k))[None, :]
        seen = mask.visible(rows, columns, mask.offset(len(of_q), len(of_k)))
        # A query that sees no key has output 0.
        outs.append(sdpa(of_q, of_k, of_v, seen).nan_to_num(0.0))
    return torch.cat(outs)


OWN = Library("own")
VARLEN = functools.partial(torch_library.varlen_call, attend=varlen_attn)
for _name, _build in (("apart", apart), ("flex", flex), ("varlen", VARLEN)):
    _added = OWN.variant(
        _name,
        "",
        on_gpu=False,
        dtypes=("f32",),
        parameters=Access.DECLARED,
        packed=_name != "flex",
        effective_from_grid=CUTLASS_SPLITS if _name == "apart" else {},
    )
    _added(_build)

CROSS: dict[str, Any] = {"kv_heads": 2, "seq_q": 9, "seq_k": 21}


@pytest.mark.parametrize("direction", ALL)
@pytest.mark.parametrize(
    ("variant", "masks", "axes"),
    [
        ("apart", [support.FULL], {"kv_heads": 2}),
        ("apart", [support.FULL], {"layout": "bhsd", **CROSS}),
        ("apart", [support.FULL], {"batch": 1, "varlen": {"q": [24], "k": [24]}}),
        ("flex", [*BOTTOM_RIGHT, support.CAUSAL], {"layout": "bshd", **CROSS}),
        ("flex", [*BOTTOM_RIGHT, support.CAUSAL], {"layout": "bhsd", **CROSS}),
        ("varlen", BOTTOM_RIGHT, {"varlen": RAGGED, "kv_heads": 2}),
        ("varlen", BOTTOM_RIGHT, {"batch": 3, **CROSS}),
        ("varlen", BOTTOM_RIGHT, {"batch": 1, "layout": "bhsd", **CROSS}),
        # On a square a causal mask has no alignment.
        ("varlen", [support.CAUSAL], {"batch": 3}),
    ],
)
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_values(variant: str, masks: Any, axes: Any, direction: str) -> None:
    """Also once other contents lie where the inputs did."""
    worker = OWN()
    for mask in masks:
        prepared = prepare(worker, variant, mask=mask, direction=direction, **axes)
        support.right(prepared, 5e-6)
        support.right_after_timing(worker.measure(support.PLAN), 5e-6, prepared)


def prepare(worker: TorchWorker, variant: str, params: Any = None, **axes: Any) -> Any:
    return worker.prepare(support.request(variant, params, **axes))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_needless_copies_reorder_and_come_back(layout: str) -> None:
    worker, other = OWN(), {"bhsd": "bshd", "bshd": "bhsd"}[layout]
    orders = {"bhsd": (512, 16, 128, 1), "bshd": (512, 64, 16, 1)}
    for access, strides in (("views", orders[layout]), ("copies", orders[other])):
        axes = {"seq_q": 8, "layout": layout, "direction": "both"}
        prepared = prepare(worker, "apart", {"access": access}, **axes)
        support.right(prepared, 5e-6)
        assert prepared["effective"] == {"access": access, "strides": strides}
    out = worker.call()[0]
    assert (out.transpose(1, 2) if layout == "bhsd" else out).is_contiguous()


def test_a_parameter_becomes_what_the_grid_shows() -> None:
    worker = OWN()
    prepare(worker, "apart", direction="backward")
    backward = {"name": "fmha_cutlassB_f32_aligned_64x64_k32_sm80(Params)", "grid": [157, 2, 1]}
    census = {"launches": [{"name": "copy", "grid": [8, 1, 1]}, backward], "counts": {}}
    profiled = worker.profile(worker.call, census)
    assert profiled["effective"] == {"num_splits_key": 157}
    # As without a GPU, or with another kernel.
    assert "effective" not in worker.profile(worker.call, {"launches": [], "counts": {}})
    for library, variants in ((torch_library, ["efficient"]), (xformers, ["default", "cutlass"])):
        rows = library.WORKER.rows
        assert all(rows[name].effective_from_grid == CUTLASS_SPLITS for name in variants)


# The arguments of other libraries.


def cpu_case(module: Any = None, params: Any = None, **axes: Any) -> TorchCase:
    """A case on the CPU, of the module that a library is."""
    problem, arrays = problem_of(**axes), Arrays.for_torch(CPU)
    tensors = {
        name: inputs.whole(arrays, problem, name, support.SEED, DTYPES[problem.dtype])
        for name in inputs.names(problem)
    }
    return TorchCase(
        problem=problem, variant="", params=params or {}, tensors=tensors, module=module
    )


def test_every_flash_attention_is_given_the_mask_as_it_takes_it() -> None:
    axes: dict[str, Any] = {"mask": window(5, None), "varlen": RAGGED, "kv_heads": 2}
    given = dict[str, Any]()

    def attend(q: Any, k: Any, v: Any, **named: Any) -> Any:
        given.clear()
        given.update(named)
        return q

    flash_attn.fa2(cpu_case(types.SimpleNamespace(flash_attn_varlen_func=attend), **axes)).run()
    assert (given["causal"], given["window_size"]) == (False, (5, -1))
    assert given["cu_seqlens_q"].tolist() == [0, 3, 27, 34]
    operators = types.SimpleNamespace(
        fwd=lambda *qkv, **named: (attend(*qkv, **named), "logsumexp"),
        bwd=lambda dout, q, k, v, out, logsumexp, **named: (attend(q, k, v, **named), k, v),
    )
    for direction in ALL:
        with mock.patch.object(torch.ops, "flash_attn_3", operators, create=True):
            results = flash_attn.fa3(cpu_case(direction=direction, **axes)).run()
        assert len(results) == {"forward": 1, "backward": 3, "both": 4}[direction]
        assert (given["is_causal"], given["softmax_scale"]) == (False, 0.25)
        assert (given["window_size_left"], given["window_size_right"]) == (5, -1)
        assert given["cu_seqlens_k"].tolist() == [0, 5, 29, 45]
        assert (given["max_seqlen_q"], given["max_seqlen_k"]) == (24, 24)
    module = types.SimpleNamespace(_flash_attn_fwd=operators.fwd)
    flash_attn.fa4(cpu_case(module, **axes)).run()
    # -1 is a window there, which ends before the query itself.
    assert (given["window_size_left"], given["window_size_right"]) == (5, None)
    assert (given["max_seqlen_q"], given["max_seqlen_k"], given["return_lse"]) == (24, 24, False)


def test_num_splits_is_of_forward() -> None:
    operators = types.SimpleNamespace(fwd=mock.Mock(return_value=("out", "logsumexp")))
    for asked, effective in ((None, None), (4, 4), (1, 1), (0, None), (-1, None)):
        case = cpu_case(params={} if asked is None else {"num_splits": asked})
        with mock.patch.object(torch.ops, "flash_attn_3", operators, create=True):
            assert flash_attn.fa3(case).run() == ("out",)
        assert case.effective.get("num_splits") == effective
        assert operators.fwd.call_args.kwargs.get("num_splits") == asked


@pytest.mark.parametrize(
    ("registered", "modules", "there"),
    [
        ({"fwd": None}, ["xformers.ops.fmha.flash3"], "fa3"),
        # A module that registers nothing does not count.
        ({}, ["xformers.ops.fmha.flash3", "flash_attn.cute.interface"], "fa4"),
    ],
)
def test_where_each_flash_attention_is_found(registered: Any, modules: Any, there: str) -> None:
    """Modules of these names, with nothing in them."""
    every = {name: None for row in flash_attn.WORKER.rows.values() for name in row.modules}
    found = {module: types.ModuleType(module) for module in modules}
    operators = types.SimpleNamespace(**registered)
    with (
        mock.patch.dict(sys.modules, every | found),
        mock.patch.object(torch.ops, "flash_attn_3", operators, create=True),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        worker = flash_attn.WORKER()
    assert list(worker.modules) == [there]
    assert "absent" not in worker.hello()
    if there != "fa3":
        assert "flash_attn_interface cannot be imported" in worker.missing["fa3"]
        assert "it registers no operator" in worker.missing["fa3"]


class TestFlashInfer:
    @pytest.mark.parametrize("axes", [{}, {"layout": "bhsd"}, {"varlen": RAGGED, "kv_heads": 2}])
    def test_pages_lie_in_random_order(self, axes: Any) -> None:
        case = cpu_case(params={"page_size": 4}, seq_k=30 if "varlen" not in axes else 24, **axes)
        pages, given = flashinfer.Pages.from_case(case), case.tensors
        first, order, used = (part.tolist() for part in pages.table)
        assert sorted(order) == list(range(len(order))) != order
        for _ in range(2):
            for number, of in enumerate(case.problem.sequences):
                places = order[first[number] : first[number + 1]]
                assert 4 * (len(places) - 1) + used[number] == of.seq_k
                for name, pool in (("k", pages.k), ("v", pages.v)):
                    rows, whole = pool[places].flatten(0, 1), given[name]
                    own = whole[number] if whole.ndim == 4 else whole[of.k_start :][: of.seq_k]
                    assert torch.equal(rows[: of.seq_k], own)
                    assert rows[of.seq_k :].ne(0).all(), "rows past the end are random"
            given["k"].mul_(2)
            pages.fill()

    @pytest.mark.parametrize("plan", ["once", "each"])
    def test_plan_is_made_once_or_in_each_call(self, plan: str) -> None:
        case, plans = cpu_case(params={"plan": plan}), mock.Mock()
        call = flashinfer.planned(case, plans, lambda: case.tensors["q"])
        for _ in range(3):
            call.run()
        assert (plans.call_count, call.varies) == ((1, False) if plan == "once" else (3, True))

    def test_a_split_of_nothing_is_a_mistake(self) -> None:
        with pytest.raises(Failed, match="is not a positive integer"):
            flashinfer.split_rules(cpu_case(params={"fixed_split_size": 0}), fa2=True)


class TestCudnn:
    """Planning, on a frontend that does nothing; values are checked on a GPU."""

    def attention(self, direction: str, each: bool) -> tuple[cudnn.ProblemGraphs, mock.Mock, Any]:
        case, frontend = cpu_case(direction=direction, dtype="f16"), mock.MagicMock()
        graph = frontend.pygraph.return_value
        graph.get_workspace_size.return_value, graph._plan_index = 0, 1
        graph.get_plan_name_at_index = "eng{}".format
        graph.sdpa.side_effect = lambda **given: [mock.MagicMock() for _ in range(2)]
        graph.sdpa_backward.side_effect = lambda **given: [mock.MagicMock() for _ in range(3)]
        attention = cudnn.ProblemGraphs(frontend, "handle", case.problem, CPU, each)
        return attention, frontend.pygraph, attention.build(case.tensors).run

    @pytest.mark.parametrize(
        ("direction", "graphs", "results"),
        [("forward", 1, 1), ("backward", 1, 3), ("both", 2, 4)],
    )
    def test_plans_are_made_once_or_in_each_call(
        self, direction: str, graphs: int, results: int
    ) -> None:
        for each, expected in ((False, 0), (True, graphs)):
            attention, made, call = self.attention(direction, each)
            if not each:
                assert set(attention.names().values()) == {"eng1"}
            before = made.call_count
            assert len(call()) == results
            assert made.call_count - before == expected

    def test_a_plan_lives_until_the_device_is_done_with_it(self) -> None:
        attention, _, call = self.attention("forward", each=True)
        with mock.patch.object(attention, "_idle", return_value=False):
            for _ in range(3):
                call()
        first, second = attention.retired
        assert first is not second
        assert attention.plans["forward"] not in (first, second)
        call()
        assert attention.retired == []


def test_flas_packed_batch_is_one_row_and_a_window_counts_the_query() -> None:
    given = dict[str, Any]()

    def attend(q: Any, k: Any, v: Any, window_size: Any = None, cu_seqlens: Any = None) -> Any:
        given.update(q=q, window_size=window_size, cu_seqlens=cu_seqlens)
        return v

    module = types.SimpleNamespace(parallel_attn=attend)
    case = cpu_case(module, varlen=RAGGED_SELF, mask=window(3, 0))
    (out,) = fla.parallel(case).run()
    assert torch.equal(out, case.tensors["v"])
    assert (len(given["q"]), given["window_size"]) == (1, 4)
    assert given["cu_seqlens"].tolist() == [0, 3, 27]


# The schemas of operators and the shapes of what they return, without a GPU.


def by_shape(build: Any, params: Any = None, **axes: Any) -> Any:
    problem = problem_of(**axes)
    with FakeTensorMode():
        tensors = {
            name: problem.turned(
                torch.empty(problem.laid_out(name), dtype=DTYPES[problem.dtype], device="cuda")
            )
            for name in ("q", "k", "v", "dout")
        }
        case = TorchCase(problem=problem, variant="", params=params or {}, tensors=tensors)
        results = build(case).run()
    shapes = [tuple(result.shape) for result in results]
    assert shapes == [problem.shape(name) for name in problem.results]
    return results


@pytest.mark.skipif(
    not support.installed("torch.nn.attention.varlen"), reason="this torch has no varlen_attn"
)
def test_the_real_varlen_attn_by_shape() -> None:
    for axes in ({"varlen": RAGGED, "mask": support.CAUSAL_BR}, {"mask": support.CAUSAL}):
        by_shape(torch_library.varlen, dtype="bf16", batch=3, **axes)


@pytest.mark.parametrize("direction", ALL)
def test_torchs_operators_by_shape(direction: str) -> None:
    for axes in ({"mask": support.CAUSAL_BR, **CROSS}, {"varlen": RAGGED}):
        by_shape(torch_library.flash, dtype="bf16", direction=direction, **axes)
    efficient = functools.partial(by_shape, torch_library.efficient)
    efficient(direction=direction)
    efficient(direction=direction, mask=support.CAUSAL_BR, seq_q=9)
    efficient(direction=direction, varlen=RAGGED_SELF, mask=support.CAUSAL)


def test_what_the_efficient_operator_takes_by_shape() -> None:
    efficient = functools.partial(by_shape, torch_library.efficient)
    efficient(mask=window(4, 0, "top-left"))
    efficient(kv_heads=1)
    for splits in (-1, 1, 4):
        efficient({"num_splits_key": splits}, direction="backward")
    for result in efficient({"access": "copies"}, layout="bhsd", direction="both"):
        assert result.transpose(1, 2).is_contiguous()


class TestXformers:
    @pytest.mark.skipif(not support.installed("xformers"), reason="xFormers is not installed")
    @pytest.mark.parametrize("variant", ["default", "cutlass", "flash"])
    def test_without_a_gpu_every_case_is_unsupported_in_its_words(self, variant: str) -> None:
        with pytest.raises(Unsupported, match=r"device=cpu \(supported: \{'cuda'\}\)"):
            prepare(xformers.WORKER(), variant, dtype="f16", head_dim=64, direction="backward")


def problem_of(**axes: Any) -> Problem:
    return Problem.from_wire(support.wire(**axes))


FRONTEND = mock.Mock(diagonal_alignment=mock.Mock(TOP_LEFT="top", BOTTOM_RIGHT="bottom"))

WIDE = {"seq_k": 30}
MASKS: dict[str, tuple[Any, Any, list[tuple[Any, ...]]]] = {
    "flashinfer": (
        flashinfer.masking,
        ("causal", "window_left"),
        [
            ({"mask": support.FULL, **WIDE}, False, -1),
            ({"mask": support.CAUSAL_BR, **WIDE}, True, -1),
            ({"mask": window(4, 0), **WIDE}, True, 4),
            ({"mask": window(4, None), **WIDE}, False, 4),
        ],
    ),
    "cudnn": (
        functools.partial(cudnn.band, FRONTEND),
        ("diagonal_alignment", "diagonal_band_left_bound", "diagonal_band_right_bound"),
        [
            ({}, None, None, None),
            ({"mask": support.CAUSAL}, "top", None, 0),
            # On a square both mean the same.
            ({"mask": support.CAUSAL_BR}, "top", None, 0),
            ({"mask": support.CAUSAL_BR, **WIDE}, "bottom", None, 0),
            # The left bound is the first distance that is hidden.
            ({"mask": window(5, 2), **WIDE}, "bottom", 6, 2),
            ({"mask": window(4, None, "top-left"), **WIDE}, "top", 5, None),
        ],
    ),
    "transformer_engine": (
        functools.partial(transformer_engine.mask_arguments, windowed=False),
        ("attn_mask_type", "window_size", "bottom_right_diagonal", "qkv_format", "attention_type"),
        [
            ({}, "no_mask", (-1, -1), None, "bshd", "self"),
            ({"mask": support.CAUSAL}, "causal", (-1, 0), None, "bshd", "self"),
            ({"mask": support.CAUSAL, **WIDE}, "causal", (-1, 0), None, "bshd", "cross"),
            ({"mask": support.CAUSAL_BR}, "causal", (-1, 0), None, "bshd", "self"),
            (
                *({"mask": support.CAUSAL_BR, **WIDE}, "causal_bottom_right"),
                *((-1, 0), None, "bshd", "cross"),
            ),
            ({"mask": window(5, 0, "top-left")}, "causal", (5, 0), None, "bshd", "self"),
            ({"mask": window(5, 3, "top-left")}, "no_mask", (5, 3), None, "bshd", "self"),
            ({"mask": window(5, 3, "top-left"), **WIDE}, "no_mask", (5, 3), False, "bshd", "cross"),
            ({"mask": window(5, 3), **WIDE}, "no_mask", (5, 3), True, "bshd", "cross"),
            # An unbounded side is as wide as the longer sequence.
            ({"mask": window(None, 3), **WIDE}, "no_mask", (30, 3), True, "bshd", "cross"),
            ({"mask": window(5, None), **WIDE}, "no_mask", (5, 30), True, "bshd", "cross"),
            ({"varlen": RAGGED_SELF}, "padding", (-1, -1), None, "thd", "self"),
            (
                *({"varlen": RAGGED_SELF, "mask": support.CAUSAL}, "padding_causal"),
                *((-1, 0), None, "thd", "self"),
            ),
        ],
    ),
}
"""By library, what makes arguments of a problem's mask, which of them, and their values."""


@pytest.mark.parametrize("library", MASKS)
def test_masks_as_a_library_takes_them(library: str) -> None:
    arguments, names, rows = MASKS[library]
    for axes, *expected in rows:
        assert [arguments(problem_of(**axes)).get(name) for name in names] == expected, axes


def test_a_windowed_layer_differs_in_its_window_alone() -> None:
    causal = problem_of(mask=support.CAUSAL, varlen=RAGGED_SELF)
    plain, windowed = (transformer_engine.mask_arguments(causal, each) for each in (False, True))
    assert windowed == plain | {"window_size": (256, 0)}


def earlier(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int) -> None:
    """varlen_attn as it was before it had windows."""


TE = functools.partial(transformer_engine.attention, backend="default")
FLA = types.SimpleNamespace(parallel_attn=lambda q, k, v, cu_seqlens=None: None)
ALTERNATE = {"windows": "alternate"}


@pytest.mark.parametrize(
    ("words", "build", "params", "axes"),
    [
        *(
            ("at the bottom right", build, {}, {"mask": support.CAUSAL, **axes})
            for build in (torch_library.flash, VARLEN, flash_attn.fa3, flashinfer.prefill)
            for axes in ({"seq_q": 9, "seq_k": 24}, {"varlen": RAGGED})
        ),
        (
            *("has no window_size", functools.partial(VARLEN, attend=earlier)),
            *({}, {"varlen": RAGGED, "mask": support.CAUSAL_BR}),
        ),
        ("bhsd", VARLEN, {}, {"layout": "bhsd"}),
        ("bwd has no num_splits", flash_attn.fa3, {"num_splits": 4}, {"direction": "backward"}),
        ("backward has", torch_library.efficient, {"num_splits_key": 4}, {}),
        ("kv_heads", torch_library.efficient, {}, {"kv_heads": 2}),
        ("kv_heads", torch_library.efficient, {}, {"kv_heads": 1, "direction": "backward"}),
        ("to the right", flashinfer.prefill, {}, {"mask": window(4, 2)}),
        ("bhsd", flashinfer.prefill, {}, {"layout": "bhsd"}),
        ("one query", flashinfer.paged_decode, {}, {"seq_q": 2}),
        ("one head_dim", flashinfer.paged_decode, {}, {"seq_q": 1, "head_dim_v": 8}),
        ("has no plan", flashinfer.prefill, {"plan": "once"}, {"batch": 1}),
        ("backend fa2 alone", flashinfer.prefill, {"fixed_split_size": 8}, {}),
        ("no window before fla-core 0.5.0", fla.parallel, {}, {"mask": window(3, 0)}),
        ("is causal", fla.parallel, {}, {"mask": support.FULL}),
        ("is causal", fla.parallel, {}, {"mask": window(3, 2)}),
        ("must be equal", fla.parallel, {}, {"mask": support.CAUSAL, "seq_q": 20, "seq_k": 24}),
        ("at most 256", fla.parallel, {}, {"mask": support.CAUSAL, "head_dim": 320}),
        ("takes bshd, sbhd and thd", TE, {}, {"layout": "bhsd"}),
        ("two or more", TE, ALTERNATE, {"mask": support.CAUSAL}),
        ("causal mask", TE, {"layers": 2, **ALTERNATE}, {"mask": window(5, 3, "top-left")}),
    ],
)
def test_what_they_do_not_do(words: str, build: Any, params: Any, axes: dict[str, Any]) -> None:
    module = FLA if build is fla.parallel else mock.MagicMock()
    with pytest.raises(Unsupported, match=words):
        build(cpu_case(module, params, **axes))


PACKAGES: dict[str, tuple[Library, dict[str, Any]]] = {
    "cudnn": (cudnn.WORKER, {"graph": {"plan": "never"}}),
    "fla": (fla.WORKER, {}),
    "flash_attn": (flash_attn.WORKER, {"fa2": {"num_splits": 2}, "fa3": {"access": "direct"}}),
    "flashinfer": (flashinfer.WORKER, {"prefill": {"backend": "fa9"}}),
    "transformer_engine": (transformer_engine.WORKER, {"default": {"fp8": "attention"}}),
    "xformers": (xformers.WORKER, {"flash": {"num_splits_key": 2}, "cutlass": {"access": "x"}}),
}
"""By module, its declaration, and parameters that variants do not have."""


@pytest.mark.parametrize("library", PACKAGES)
def test_a_library_that_is_not_here_is_listed_and_every_case_says_why(library: str) -> None:
    declaration, mistakes = PACKAGES[library]
    if support.installed(library):
        pytest.skip(f"{library} is installed")
    worker = declaration()
    hello = worker.hello()
    assert [variant["name"] for variant in hello["variants"]] == list(declaration.rows)
    assert f"pip install {declaration.packages[0]}" in hello["absent"]
    for variant in declaration.rows:
        with pytest.raises(Unsupported, match=f"{library}.*ModuleNotFoundError"):
            prepare(worker, variant, mask=support.CAUSAL)
    for variant, params in mistakes.items():
        with pytest.raises(Failed):
            prepare(worker, variant, params)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("variant", ["flex", "varlen"])
def test_without_a_gpu_it_is_unsupported(variant: str) -> None:
    with pytest.raises(Unsupported, match="needs a GPU"):
        prepare(torch_library.WORKER(), variant, dtype="f16", mask=support.CAUSAL)
