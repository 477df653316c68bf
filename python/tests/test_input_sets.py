"""Sets of inputs in turn: which one a sample is taken on, and what lies in memory then."""

import functools
from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch

from regatta_worker.on_torch.case import written
from regatta_worker.on_torch.inputs import MadeTensors, TorchInputSets, memory_order
from regatta_worker.problem import inputs
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.input_sets import LAST, CaseInputs, InputSets, fresh, in_turn, seed_of
from regatta_worker.problem.planes import alike, drawn

ARRAYS = Arrays.for_torch("cpu")
FILL = functools.partial(inputs.fill, ARRAYS)
SETS = CaseInputs(seed=7, sets=3)


class TestOrder:
    def sets(self, numbers: Any, **given: Any) -> tuple[InputSets, list[int]]:
        put: list[int] = []
        of = CaseInputs(sets=3, numbers=numbers)
        return InputSets(of, put.append, lambda error: False, **given), put

    def test_the_last_is_on_its_own_set_and_no_two_in_a_row_are_alike(self) -> None:
        makers: tuple[Callable[[], Iterator[int]], ...]
        makers = (fresh, lambda: in_turn(3), lambda: in_turn(5))
        for make in makers:
            for samples in range(1, 12):
                sets, put = self.sets(make())
                for number in range(samples):
                    sets.change(last=number == samples - 1)
                assert put[-1] == LAST
                assert put.count(LAST) == 1
                # Warmed up on set 0.
                assert all(a != b for a, b in zip([0, *put], put, strict=False)), put
                assert sets.as_reply()["input_sets"] == len({0, *put})
        with pytest.raises(ValueError):
            in_turn(2)

    def test_fresh_sets_are_never_seen_twice(self) -> None:
        found = list(islice(fresh(), 100))
        assert len({0, LAST, *found}) == 102
        assert seed_of((1 << 64) - 1, 1) == 0, "seeds wrap"

    def test_fewer_sets_are_told_with_the_reason(self) -> None:
        sets, _ = self.sets(fresh())
        sets.change(last=True)
        reason = {"input_sets": 2, "input_sets_reason": "there were 1 samples"}
        assert sets.as_reply() == reason

    def test_where_memory_is_short_the_inputs_are_those_of_the_first_call(self) -> None:
        put: list[int] = []

        def short(number: int) -> None:
            put.append(number)
            if number:
                raise MemoryError("no more\nof it")

        sets = InputSets(CaseInputs(sets=3), short, lambda error: isinstance(error, MemoryError))
        for last in (False, False, True):
            sets.change(last)
        assert put[0] >= 2, "a set of its own"
        assert put[1:] == [0], "tried once, and put back"
        assert sets.number == 0
        assert sets.as_reply()["input_sets"] == 1
        assert "no more" in sets.as_reply()["input_sets_reason"]
        other = InputSets(
            CaseInputs(sets=3), mock.Mock(side_effect=ZeroDivisionError), lambda error: False
        )
        with pytest.raises(ZeroDivisionError):
            other.change(last=False)


class TestInPlace:
    def made(self, **axes: Any) -> tuple[Problem, dict[str, torch.Tensor]]:
        problem = Problem.from_wire(support.wire(**axes))
        return problem, {
            name: inputs.whole(ARRAYS, problem, name, 7, torch.bfloat16) for name in inputs.TENSORS
        }

    def test_contents_are_those_of_the_set_and_addresses_stay(self) -> None:
        ragged = {"q": [3, 24], "k": [5, 24]}
        layouts: tuple[Any, ...] = ({}, {"layout": "bhsd", "kv_heads": 2}, {"varlen": ragged})
        for axes, free_bytes in product(layouts, (None, 0)):
            problem, tensors = self.made(**axes)
            refresh = mock.Mock()
            sets = TorchInputSets(tensors, SETS, FILL, refresh, free_bytes=free_bytes)
            before = [(x.data_ptr(), x.stride(), x._version) for x in tensors.values()]
            for last in (False, False, False, True):
                sets.change(last)
                for name, tensor in tensors.items():
                    seed = seed_of(7, sets.number)
                    wanted = inputs.whole(ARRAYS, problem, name, seed, torch.bfloat16)
                    elsewhere = not last and free_bytes is None
                    assert torch.equal(tensor, wanted) != elsewhere, (axes, name)
                    ordered = (x.flatten().sort().values for x in (tensor, wanted))
                    assert torch.equal(*ordered), "the same elements"
            after = [(x.data_ptr(), x.stride(), x._version) for x in tensors.values()]
            for (*place, version), (*placed, changed) in zip(before, after, strict=True):
                assert place == placed
                assert changed > version, "the version shows the change"
            assert refresh.call_count == 4

    def test_no_two_samples_have_the_same_contents(self) -> None:
        for free_bytes in (None, 0):
            _, tensors = self.made(layout="bhsd", kv_heads=2)
            sets = TorchInputSets(tensors, SETS, FILL, free_bytes=free_bytes)
            seen = [[x.clone() for x in tensors.values()]]
            for number in range(30):
                sets.change(last=number == 29)
                now = [x.clone() for x in tensors.values()]
                for then in seen:
                    for a, b in zip(then, now, strict=True):
                        # Two in 100 are alike by chance: bfloat16 has few values.
                        assert (a == b).double().mean().item() < 0.1
                seen.append(now)

    def test_planes_that_are_made_for_a_check_are_those_in_place(self) -> None:
        ragged = {"q": [3, 24], "k": [5, 24]}
        layouts: tuple[Any, ...] = ({}, {"layout": "bhsd", "kv_heads": 2}, {"varlen": ragged})
        for axes, is_dense in product(layouts, (True, False)):
            problem, tensors = self.made(**axes)
            if not is_dense:
                wide = {
                    n: torch.empty((*x.shape[:-1], 40), dtype=x.dtype) for n, x in tensors.items()
                }
                tensors = {n: x[..., : tensors[n].shape[-1]] for n, x in wide.items()}
            sets = TorchInputSets(tensors, SETS, FILL)
            for last in (False, False, True):
                sets.change(last)
                for some in alike(drawn(problem)):
                    some = tuple(x.of_call(seed_of(7, sets.number), sets.along) for x in some)
                    for name, tensor in tensors.items():
                        order = memory_order(tensor)
                        assert bool(order.axes) == is_dense
                        made = inputs.part(ARRAYS, problem, name, some, torch.bfloat16, order)
                        cuts = torch.cat([plane.cut(name, tensor) for plane in some], dim=1)
                        assert torch.equal(made[0], cuts), (axes, name, last)

    def test_sets_are_made_once_for_cases_of_the_same_shapes(self) -> None:
        _, tensors = self.made()
        size = sum(tensor.nbytes for tensor in tensors.values())
        for limit, again in ((3 * size, 0), (3 * size - 1, 3 * len(tensors))):
            kept, fill = MadeTensors(limit), mock.Mock(side_effect=FILL)
            for _ in range(2):
                sets = TorchInputSets(tensors, SETS, fill, made=kept)
                assert sets.held_bytes == 3 * size
                sets.change(last=True)
                wanted = inputs.whole(ARRAYS, self.made()[0], "q", seed_of(7, LAST), torch.bfloat16)
                assert torch.equal(tensors["q"], wanted)
                sets.forget()
                assert kept.nbytes == (0 if again else 3 * size)
            assert fill.call_count == 3 * len(tensors) + again
        _, others = self.made(heads=2, kv_heads=2)
        kept = MadeTensors(3 * size)
        TorchInputSets(tensors, SETS, FILL, made=kept).forget()
        sets = TorchInputSets(others, SETS, FILL, made=kept)
        assert sets.held_bytes < 3 * size, "the earlier ones made room"

    def test_tensors_with_others_between_are_copied_as_they_are(self) -> None:
        wide = torch.zeros(4, 8, dtype=torch.bfloat16)
        tensors = {"q": wide[:, :5], "k": torch.zeros(1, 4, 1, dtype=torch.bfloat16)}
        sets = TorchInputSets(tensors, SETS, FILL)
        for last in (False, True):
            sets.change(last)
            wanted = inputs.block(ARRAYS, seed_of(7, sets.number), "q", 0, (4, 5), wide.dtype)
            assert torch.equal(tensors["q"], wanted)
            assert not wide[:, 5:].any()

    def test_what_forward_saved_is_written_over(self) -> None:
        shared = torch.ones(3)
        before = (shared, (torch.zeros(2), 5), [torch.zeros(1)])
        held = [before[1][0], before[2][0]]
        written(before, (shared, (torch.full((2,), 7.0), 5), [torch.ones(1)]))
        assert [x.tolist() for x in held] == [[7.0, 7.0], [1.0]]
