"""Results of a case whose first ones were held to float64 in another process: compared, to the
last bit. And what a worker keeps between cases: nothing that a call could have changed."""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

import support

if not support.installed("torch"):
    raise unittest.SkipTest("torch is not installed")

import torch
import torch.nn.functional as F

from regatta_worker.on_torch import digest as digests
from regatta_worker.on_torch.case import Asked, Built, Variant
from regatta_worker.on_torch.digest import digest
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.variants import Access, autograd_call
from regatta_worker.problem.reference import ReferenceCache

TOLERANCE = 1e-5


class Planted(TorchLibrary):
    """Attention that a test makes wrong from a call on, or that writes into its inputs."""

    NAME = "planted"

    def __init__(self) -> None:
        super().__init__()
        self.wrong_from: int | None = None
        self.writes = False
        self.calls = 0

    def variants(self) -> dict[str, Variant]:
        return {"planted": Variant("v", ("f32",))}

    def build(self, asked: Asked) -> Built:
        self.calls = 0

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            heads = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(*heads).transpose(1, 2)

        made = autograd_call(asked.problem, asked.tensors, Access(asked.problem, False), attend)

        def call() -> Any:
            results = tuple(x.detach().clone() for x in made.call())
            self.calls += 1
            if self.wrong_from is not None and self.calls >= self.wrong_from:
                # One element of one head: what is sampled would not see it.
                results[0][-1, 0, 1, 0] *= 1.5
            if self.writes:
                with torch.no_grad():
                    asked.tensors["q"].zero_()
            return results

        return Built(call, refresh=made.refresh)


def request(**axes: Any) -> dict[str, Any]:
    return {
        "variant": "planted",
        "seed": support.SEED,
        "params": {},
        "input_sets": support.SETS,
        "problem": support.wire(**axes),
    }


class KnownResults(unittest.TestCase):
    def test_what_is_the_same_needs_no_reference_and_what_is_wrong_has_its_error(self) -> None:
        for direction in ("forward", "backward", "both"):
            with self.subTest(direction=direction):
                asked = request(direction=direction)
                first = Planted()
                prepared = first.prepare(asked)
                measured = first.measure(support.PLAN)
                before, after = prepared["digests"], measured["checked"]["digests"]
                self.assertEqual(list(before), list(prepared["errors"]))
                self.assertNotEqual(before, after, "they are of other inputs")

                later = Planted()
                with mock.patch.object(ReferenceCache, "_kept", side_effect=AssertionError):
                    same = later.prepare(asked | {"known": before})
                    checked = later.measure(support.PLAN | {"known": after})["checked"]
                for found, of_first in ((same, prepared), (checked, measured["checked"])):
                    self.assertEqual(found["errors"], {})
                    self.assertEqual(found["digests"], of_first["digests"])
                    self.assertEqual(found["probes"], of_first["probes"])

                name = next(iter(before))
                later.wrong_from = 1
                wrong = later.prepare(asked | {"known": before})
                self.assertGreater(wrong["errors"][name]["relative_l2"], 1e-3)
                self.assertNotEqual(wrong["digests"], before)
                # Right at the first call: wrong from the first timed one on.
                later.wrong_from = 2
                self.assertEqual(later.prepare(asked | {"known": before})["errors"], {})
                wrong = later.measure(support.PLAN | {"known": after})["checked"]
                self.assertNotEqual(wrong["digests"], after)
                self.assertIn("relative_l2", wrong["errors"][name])

    def test_results_that_are_the_same_for_other_inputs_are_not_known(self) -> None:
        library = Planted()
        before = library.prepare(request())["digests"]
        found = library.prepare(request() | {"seed": 43, "known": before})
        self.assertLess(found["errors"]["out"]["relative_l2"], TOLERANCE)


class Kept(unittest.TestCase):
    def test_a_call_that_writes_into_its_inputs_changes_no_other_case(self) -> None:
        library = Planted()
        before = library.prepare(request())
        library.writes = True
        library.prepare(request())
        library.measure(support.PLAN)
        library.release()
        library.writes = False
        again = library.prepare(request())
        self.assertEqual(again["digests"], before["digests"])
        self.assertEqual(again["errors"], before["errors"])
        measured = library.measure(support.PLAN)
        support.right_after_timing(self, measured, TOLERANCE, before)

    def test_inputs_are_known_by_all_that_determines_them(self) -> None:
        kept = Planted()._kept

        def of(seed: int = 7, **axes: Any) -> dict[str, torch.Tensor]:
            problem = support_problem(**axes)
            found = kept.inputs(problem, seed)
            for name, tensor in found.items():
                self.assertEqual(tuple(tensor.shape), problem.shape(name))
            return found

        first = of()
        self.assertIs(of()["q"], first["q"])
        self.assertIs(of(mask=support.CAUSAL, direction="backward")["k"], first["k"])
        for other in ({"dtype": "bf16"}, {"layout": "bhsd"}, {"seq_q": 23}, {"seed": 8}):
            self.assertIsNot(of(**other)["q"], first["q"])
        self.assertEqual(of(layout="bhsd")["q"].stride(), (24 * 4 * 16, 16, 24 * 16, 1))
        working = kept.working(support_problem(layout="bhsd"), 7)
        self.assertEqual(working["q"].stride(), of(layout="bhsd")["q"].stride())
        self.assertIsNot(working["q"], of(layout="bhsd")["q"])

    def test_what_does_not_fit_is_not_kept_and_is_right(self) -> None:
        library = Planted()
        library._kept.shelf.limit_bytes = 1000
        prepared = library.prepare(request(direction="both"))
        measured = library.measure(support.PLAN)
        support.right_after_timing(self, measured, TOLERANCE, prepared)
        self.assertEqual(len(library._kept.shelf), 0)

    def test_where_memory_runs_out_it_is_tried_again_without_what_is_kept(self) -> None:
        library = Planted()
        library.prepare(request())
        first_call, left = library._first_call, [1]

        def short(*arguments: Any) -> Any:
            if left and left.pop():
                raise torch.OutOfMemoryError("none left")
            return first_call(*arguments)

        with mock.patch.object(library, "_first_call", short):
            prepared = library.prepare(request())
        self.assertLess(prepared["errors"]["out"]["relative_l2"], TOLERANCE)


def support_problem(**axes: Any) -> Any:
    from regatta_worker.problem.attention import Problem

    return Problem.from_wire(support.wire(**axes))


class Digests(unittest.TestCase):
    def test_any_element_and_any_two_that_change_places_change_it(self) -> None:
        torch.manual_seed(1)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            tensor = torch.randn(3, 5, 7).to(dtype)
            seen = {digest(tensor)}
            for index in range(tensor.numel()):
                changed = tensor.clone()
                flat = changed.view(-1)
                flat[index] = -flat[index]
                seen.add(digest(changed))
                changed = tensor.clone()
                flat = changed.view(-1)
                other = (index + 1) % tensor.numel()
                flat[index], flat[other] = tensor.view(-1)[other], tensor.view(-1)[index]
                seen.add(digest(changed))
            swapped = sum(
                int(tensor.view(-1)[i] == tensor.view(-1)[i - 1]) for i in range(tensor.numel())
            )
            self.assertEqual(len(seen), 1 + 2 * tensor.numel() - swapped)

    def test_it_is_of_the_logical_order_and_of_shape_and_type(self) -> None:
        tensor = torch.randn(2, 3, 4, 5)
        strided = tensor.transpose(1, 2).contiguous().transpose(1, 2)
        self.assertEqual(digest(strided), digest(tensor))
        self.assertNotEqual(digest(tensor.transpose(1, 2)), digest(tensor))
        self.assertNotEqual(digest(tensor.view(6, 20)), digest(tensor))
        zeros = torch.zeros(4)
        self.assertNotEqual(digest(zeros), digest(zeros.half()))
        self.assertNotEqual(digest(torch.full((4,), torch.nan)), digest(zeros))

    def test_chunks_have_numbers_of_their_own(self) -> None:
        one = torch.zeros(8)
        with mock.patch.object(digests, "CHUNK", 4):
            found = set()
            for place in range(8):
                tensor = one.clone()
                tensor[place] = 1.0
                found.add(digest(tensor))
        self.assertEqual(len(found), 8)


if __name__ == "__main__":
    unittest.main()
