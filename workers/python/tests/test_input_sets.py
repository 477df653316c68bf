"""Sets of inputs in turn, and what of that finds a result out that was kept."""

from __future__ import annotations

import contextlib
import math
import unittest
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest import mock

import support

if not support.installed("torch"):
    raise unittest.SkipTest("torch is not installed")

import torch
import torch.nn.functional as F

from test_probe import FakeLibrary

from regatta_worker.clock import probe, timing
from regatta_worker.on_torch.case import Asked, Built, Variant
from regatta_worker.on_torch.inputs import TorchInputSets
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.variants import Access, autograd_call, written
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.input_sets import LAST, Inputs, InputSets, fresh, in_turn, seed_of
from regatta_worker.problem.planes import chosen
from regatta_worker.protocol.channel import Failed

TOLERANCE = 1e-5


class Order(unittest.TestCase):
    """Which set each sample is taken on."""

    def sets(self, numbers: Any, **given: Any) -> tuple[InputSets, list[int]]:
        put: list[int] = []
        return InputSets(3, numbers, put.append, lambda error: False, **given), put

    def test_the_last_is_on_its_own_set_and_no_two_in_a_row_are_alike(self) -> None:
        for make in (fresh, lambda: in_turn(3), lambda: in_turn(5)):
            for samples in range(1, 12):
                sets, put = self.sets(make())
                for number in range(samples):
                    sets.change(last=number == samples - 1)
                self.assertEqual(put[-1], LAST)
                self.assertEqual(put.count(LAST), 1)
                # Warmed up on set 0.
                self.assertTrue(all(a != b for a, b in zip([0, *put], put, strict=False)), put)
                self.assertEqual(sets.told()["input_sets"], len({0, *put}))
        with self.assertRaises(ValueError):
            in_turn(2)

    def test_fresh_sets_are_never_seen_twice(self) -> None:
        found = list(islice(fresh(), 100))
        self.assertEqual(len({0, LAST, *found}), 102)

    def test_seeds_wrap(self) -> None:
        self.assertEqual(seed_of((1 << 64) - 1, 1), 0)

    def test_fewer_sets_are_told_with_the_reason(self) -> None:
        sets, _ = self.sets(fresh())
        sets.change(last=True)
        reason = {"input_sets": 2, "input_sets_reason": "there were 1 samples"}
        self.assertEqual(sets.told(), reason)

    def test_where_memory_is_short_the_inputs_are_those_of_the_first_call(self) -> None:
        put: list[int] = []

        def short(number: int) -> None:
            put.append(number)
            if number:
                raise MemoryError("no more\nof it")

        sets = InputSets(3, fresh(), short, lambda error: isinstance(error, MemoryError))
        for last in (False, False, True):
            sets.change(last)
        self.assertEqual(put, [2, 0], "tried once, and put back")
        self.assertEqual(sets.number, 0)
        self.assertEqual(sets.told()["input_sets"], 1)
        self.assertIn("no more", sets.told()["input_sets_reason"])
        other = InputSets(3, fresh(), _fails, lambda error: False)
        with self.assertRaises(ZeroDivisionError):
            other.change(last=False)


class InPlace(unittest.TestCase):
    """Contents of torch tensors."""

    def of(self, **axes: Any) -> tuple[Problem, dict[str, torch.Tensor]]:
        problem = Problem.from_wire(support.wire(**axes))
        return problem, {
            name: inputs.torch_input(problem, name, 7, torch.bfloat16, "cpu")
            for name in inputs.TENSORS
        }

    def test_contents_are_those_of_the_set_and_addresses_stay(self) -> None:
        ragged = {"q": [3, 24], "k": [5, 24]}
        for axes in ({}, {"layout": "bhsd", "kv_heads": 2}, {"varlen": ragged}):
            for free_bytes in (None, 0, 1 << 17):
                problem, tensors = self.of(**axes)
                refreshed: list[float] = []

                def refresh(tensors: Any = tensors, to: list[float] = refreshed) -> None:
                    to.append(tensors["q"].sum().item())

                sets = TorchInputSets(
                    tensors,
                    7,
                    3,
                    inputs.torch_fill,
                    refresh,
                    free_bytes=free_bytes,
                )
                before = [(x.data_ptr(), x.stride(), x._version) for x in tensors.values()]
                for last in (False, False, False, True):
                    sets.change(last)
                    for name, tensor in tensors.items():
                        seed = seed_of(7, sets.number)
                        wanted = inputs.torch_input(problem, name, seed, torch.bfloat16, "cpu")
                        told = (axes, free_bytes, name, sets.number)
                        if last or free_bytes is not None:
                            self.assertTrue(torch.equal(tensor, wanted), told)
                        else:
                            # The same elements, elsewhere.
                            self.assertFalse(torch.equal(tensor, wanted), told)
                            ordered = (x.flatten().sort().values for x in (tensor, wanted))
                            self.assertTrue(torch.equal(*ordered), told)
                after = [(x.data_ptr(), x.stride(), x._version) for x in tensors.values()]
                for (*place, version), (*placed, changed) in zip(before, after, strict=True):
                    self.assertEqual(place, placed)
                    self.assertGreater(changed, version, "whoever asks is told that it changed")
                self.assertEqual(len(refreshed), 4)
                self.assertEqual(refreshed[-1], tensors["q"].sum().item())

    def test_no_two_samples_have_the_same_contents(self) -> None:
        for free_bytes in (None, 0):
            _, tensors = self.of(layout="bhsd", kv_heads=2)
            sets = TorchInputSets(tensors, 7, 3, inputs.torch_fill, free_bytes=free_bytes)
            seen = [[x.clone() for x in tensors.values()]]
            for number in range(30):
                sets.change(last=number == 29)
                now = [x.clone() for x in tensors.values()]
                for then in seen:
                    for a, b in zip(then, now, strict=True):
                        # Two in 100 are alike by chance: bfloat16 has few values.
                        self.assertLess((a == b).double().mean().item(), 0.1)
                seen.append(now)

    def test_tensors_with_others_between_are_copied_as_they_are(self) -> None:
        wide = torch.zeros(4, 8, dtype=torch.bfloat16)
        tensors = {"q": wide[:, :5], "k": torch.zeros(1, 4, 1, dtype=torch.bfloat16)}
        sets = TorchInputSets(tensors, 7, 3, inputs.torch_fill)
        for last in (False, True):
            sets.change(last)
            wanted = inputs.torch_block(seed_of(7, sets.number), "q", 0, (4, 5), wide.dtype, "cpu")
            self.assertTrue(torch.equal(tensors["q"], wanted))
            self.assertFalse(wide[:, 5:].any())

    def test_parts_are_those_of_the_whole(self) -> None:
        ragged = {"q": [3, 24, 1], "k": [5, 24, 9]}
        for axes in ({}, {"layout": "bhsd", "kv_heads": 2}, {"varlen": ragged, "kv_heads": 1}):
            problem, tensors = self.of(head_dim_v=8, **axes)
            for small in (1 << 22, 100):
                with mock.patch("regatta_worker.problem.inputs.CHUNK", small):
                    for plane in chosen(problem):
                        for name, whole in tensors.items():
                            given = (problem, name, 7, plane)
                            made = inputs.torch_part(*given, torch.bfloat16, "cpu")
                            self.assertTrue(torch.equal(made[0], plane.cut(name, whole)))
                    for name, whole in tensors.items():
                        again = torch.empty_like(whole)
                        inputs.torch_fill(again, name, 7)
                        self.assertTrue(torch.equal(again, whole))

    @unittest.skipUnless(support.installed("numpy"), "numpy is not installed")
    def test_numpy_makes_the_same_parts(self) -> None:
        import numpy as np

        problem, _ = self.of(kv_heads=2)
        for plane in chosen(problem):
            theirs = inputs.numpy_part(problem, "k", (1 << 64) - 1, plane, np.float32)
            ours = inputs.torch_part(problem, "k", (1 << 64) - 1, plane, torch.float32, "cpu")
            self.assertTrue((ours.numpy() == theirs).all())

    def test_what_forward_saved_is_written_over(self) -> None:
        shared = torch.ones(3)
        before = (shared, (torch.zeros(2), 5), [torch.zeros(1)])
        held = [before[1][0], before[2][0]]
        written(before, (shared, (torch.full((2,), 7.0), 5), [torch.ones(1)]))
        self.assertEqual([x.tolist() for x in held], [[7.0, 7.0], [1.0]])


def compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*heads, enable_gqa=True).transpose(1, 2)


def _fails(number: int) -> None:
    raise ZeroDivisionError


class Keeping(TorchLibrary):
    """Attention that is right at the first call, and later by variant gives what it kept."""

    NAME = "keeping"

    def variants(self) -> dict[str, Variant]:
        names = ("right", "first", "address", "fingerprint", "version", "written", "contents")
        return {name: Variant("v", ("f32",)) for name in names}

    def build(self, asked: Asked) -> Built:
        self.computed = 0
        tensors = asked.tensors
        access = Access(asked.problem, copies=False)
        made = autograd_call(asked.problem, tensors, access, compute)
        kept: dict[Any, Any] = {}

        def now() -> Any:
            self.computed += 1
            return tuple(x.detach().clone() for x in made.call())

        def key() -> Any:
            q, k, v = (tensors[name] for name in "qkv")
            of_inputs = [x for name, x in sorted(tensors.items())]
            match asked.variant:
                case "right":
                    return object()
                case "first":
                    return None
                case "address":
                    return tuple((x.data_ptr(), x.shape) for x in (q, k, v))
                case "fingerprint":
                    # Light: the mean is much the same for all random inputs.
                    return q.data_ptr(), q.shape, round(q.detach().mean().item())
                case "version":
                    return tuple(x._version for x in of_inputs)
                case _:
                    return tuple(x.detach().double().sum().item() for x in of_inputs)

        def call() -> Any:
            # Of the previous call alone, as an output cache does.
            found = key()
            if found not in kept:
                kept.clear()
                kept[found] = now()
            return kept[found]

        buffers: list[torch.Tensor] = []

        def written_once() -> Any:
            results = made.call()
            if not buffers:
                buffers.extend(x.detach().clone() for x in results)
            return tuple(buffers)

        chosen_call = written_once if asked.variant == "written" else call
        return Built(chosen_call, refresh=made.refresh)


class Kept(unittest.TestCase):
    """A library that keeps its results is wrong after timing, and right before."""

    def measured(self, variant: str, plan: Any = None, **axes: Any) -> tuple[Any, Any, Keeping]:
        library = Keeping()
        request = {"variant": variant, "seed": 42, "params": {}, "input_sets": 3}
        prepared = library.prepare(request | {"problem": support.wire(**axes)})
        for name, error in prepared["errors"].items():
            self.assertLess(error["relative_l2"], TOLERANCE, (variant, name))
        library.computed = 0
        return prepared, library.measure(support.PLAN | (plan or {})), library

    def test_every_way_to_keep_a_result_is_found_out(self) -> None:
        for direction in ("forward", "backward", "both"):
            for layout in ("bshd", "bhsd"):
                for variant in ("first", "address", "fingerprint", "written"):
                    for plan in ({}, {"samples": 1, "min_samples": 1}, {"calls_per_sample": 3}):
                        axes = {"direction": direction, "layout": layout, "kv_heads": 2}
                        with self.subTest(variant=variant, **axes, **plan):
                            prepared, measured, _ = self.measured(variant, plan, **axes)
                            checked = measured["checked"]
                            self.assertEqual(checked["seed"], 43)
                            for name, error in checked["errors"].items():
                                self.assertGreater(error["relative_l2"], 0.5, name)
                            self.assertEqual(checked["probes"], prepared["probes"])

    def test_one_that_looks_at_the_contents_computes_each_time(self) -> None:
        for variant in ("right", "contents", "version"):
            for direction in ("forward", "backward", "both"):
                plan = {"samples": 5, "min_samples": 5, "warmup": 0}
                prepared, measured, library = self.measured(variant, plan, direction=direction)
                support.right_after_timing(self, measured, TOLERANCE, prepared)
                self.assertEqual(library.computed, 5)

    def test_right_ones_are_right(self) -> None:
        for direction in ("forward", "backward", "both"):
            for layout in ("bshd", "bhsd"):
                for axes in ({}, {"kv_heads": 1, "head_dim_v": 8}, {"seq_q": 300, "heads": 16}):
                    every = {"direction": direction, "layout": layout, **axes}
                    with self.subTest(**every):
                        prepared, measured, library = self.measured("right", **every)
                        support.right_after_timing(self, measured, TOLERANCE, prepared)
                        self.assertEqual(library.census()["launches"], [])
                        again = library.measure(support.PLAN)
                        support.right_after_timing(self, again, TOLERANCE, prepared)

    def test_without_sets_nothing_changes_and_nothing_is_said(self) -> None:
        library = Keeping()
        request = {"variant": "first", "seed": 42, "params": {}, "problem": support.wire()}
        library.prepare(request)
        measured = library.measure(support.PLAN)
        self.assertFalse({"checked", "input_sets"} & set(measured))

    def test_where_memory_is_short_the_only_set_is_checked(self) -> None:
        write = TorchInputSets._write

        def short(sets: TorchInputSets, tensors: Any, number: int) -> None:
            write(sets, tensors, number)
            if number:
                raise torch.OutOfMemoryError("none left")

        for direction in ("forward", "backward", "both"):
            with mock.patch.object(TorchInputSets, "_write", short):
                _, measured, _ = self.measured("right", direction=direction)
            self.assertEqual(measured["input_sets"], 1)
            self.assertIn("none left", measured["input_sets_reason"])
            self.assertEqual(measured["checked"]["seed"], 42)
            for error in measured["checked"]["errors"].values():
                self.assertLess(error["relative_l2"], TOLERANCE)

    def test_sets_that_do_not_fit_beside_the_inputs_are_made_in_them(self) -> None:
        full = mock.patch.object(
            TorchInputSets, "_made", side_effect=torch.OutOfMemoryError("none left")
        )
        with full:
            prepared, measured, _ = self.measured("right", direction="both")
        support.right_after_timing(self, measured, TOLERANCE, prepared)

    def test_an_element_that_is_not_finite_is_found_in_any_head(self) -> None:
        library = Keeping()
        axes = {"heads": 32, "batch": 3}
        problem = Problem.from_wire(support.wire(**axes))
        looked_at = {(plane.index, plane.kv_head) for plane in chosen(problem)}
        every = {(index, head) for index in range(3) for head in range(32)}
        index, head = min(every - looked_at)
        for value in (math.nan, math.inf):
            result = torch.zeros(problem.shape("out"))
            result[index, 5, head, 3] = value
            found = library.checked(problem, 1, (result,))["errors"]["out"]
            self.assertFalse(math.isfinite(found["relative_l2"]))

    def test_results_of_another_shape_are_told(self) -> None:
        problem = Problem.from_wire(support.wire())
        with self.assertRaisesRegex(Failed, r"out is \(2, 23, 4, 16\), not \(2, 24, 4, 16\)"):
            Keeping().checked(problem, 1, (torch.zeros(2, 23, 4, 16),))


class Graph:
    """A CUDA graph on the host: replays run the call again, into the memory of the first."""

    recorded: Any = None
    results: tuple[torch.Tensor, ...] = ()

    def __init__(self) -> None:
        self.replays = 0
        self.calls: list[Any] = []

    def replay(self) -> None:
        self.replays += 1
        for into, value in zip(self.results, Graph.recorded(), strict=True):
            into.copy_(value)


@contextlib.contextmanager
def without_a_gpu(allocated: Any) -> Any:
    """torch.cuda as the clocks use it, where `allocated()` is what the allocator counts."""

    @contextlib.contextmanager
    def capture(graph: Graph, stream: Any) -> Any:
        calls: list[Any] = []
        graph.calls = calls
        yield

    with mock.patch.multiple(
        torch.cuda,
        Stream=mock.Mock(),
        current_stream=mock.Mock(),
        stream=lambda side: contextlib.nullcontext(),
        CUDAGraph=Graph,
        graph=capture,
        synchronize=mock.Mock(),
        memory_allocated=allocated,
        max_memory_allocated=allocated,
        reset_peak_memory_stats=mock.Mock(),
    ):
        yield


class Clocks(unittest.TestCase):
    """Each clock keeps what the last timed call gave, and counts no memory of the sets."""

    def setUp(self) -> None:
        self.held = 0
        self.made: list[int] = []
        test = self

        class Changing(Inputs):
            held_bytes = 1000

            def change(self, last: bool) -> None:
                super().change(last)
                test.made.append(-1 if last else 0)

        self.inputs = Changing()
        self.plan = timing.Plan(0, samples=3, min_samples=3, budget_ms=0, cold=False)

    def call(self) -> tuple[torch.Tensor, ...]:
        self.made.append(len(self.made))
        return (torch.tensor([float(len(self.made))]),)

    def test_behind_the_gate(self) -> None:
        with mock.patch("ctypes.CDLL", return_value=FakeLibrary()):
            clock = probe.Probe("fake")
        with without_a_gpu(lambda: 5000):
            measured = timing.measure_gated(self.call, self.plan, clock, self.inputs)
            self.assertEqual(torch.cuda.reset_peak_memory_stats.call_count, 3)
        self.assertEqual(self.made, [0, 1, 0, 3, -1, 5], "changed, called, changed, ...")
        self.assertEqual([x.item() for x in self.inputs.kept[0]], [6.0])
        self.assertEqual(len(self.inputs.kept), 1)
        self.assertEqual(measured["peak_bytes"], 4000)

    def test_by_events(self) -> None:
        event = mock.Mock()
        event.elapsed_time.return_value = 1.0
        gpu: Any = SimpleNamespace(l2_bytes=lambda: 0, clock_mhz=lambda: None)
        made = torch.randint
        with (
            without_a_gpu(lambda: 5000),
            mock.patch("torch.cuda.Event", return_value=event),
            mock.patch("torch.randint", lambda *given, device, **named: made(*given, **named)),
        ):
            measured = timing.measure_events(self.call, self.plan, gpu, self.inputs)
        self.assertEqual([x.item() for x in self.inputs.kept[0]], [6.0])
        self.assertEqual((len(measured["device_ns"]), measured["peak_bytes"]), (3, 4000))

    def test_a_graphs_results_are_where_it_was_captured(self) -> None:
        with mock.patch("ctypes.CDLL", return_value=FakeLibrary()):
            clock = probe.Probe("fake")
        amounts = iter([100, 164])
        plan = timing.Plan(0, 3, 3, 0, cold=False, graph=True)
        results = (torch.zeros(1),)
        Graph.recorded, Graph.results = self.call, results
        with (
            without_a_gpu(lambda: next(amounts, 5000)),
            mock.patch("regatta_worker.clock.timing.gated_clock", return_value=clock),
        ):
            gpu: Any = SimpleNamespace(state=dict)
            measured = timing.measure_cuda(lambda: results, plan, gpu, self.inputs)
        self.assertIs(self.inputs.kept[0], results)
        self.assertEqual(results[0].item(), float(len(self.made)), "of the last replay")
        self.assertEqual(measured["peak_bytes"], 5000 - 1000 - 64)


if __name__ == "__main__":
    unittest.main()
