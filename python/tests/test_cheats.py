"""Ways to cheat the clock and the check, those that run on a CPU; `tests/gpu/cheats` tries all."""

from pathlib import Path

import pytest

import cheats
import support

INVOCATIONS = 10
"""As many as a first look of pairs starts of each side. One finds a call in four by chance."""
LIMIT = 5e-6
"""Relative L2 error that float32 is allowed."""
HONEST = ("honest", "kept_by_contents", "kept_by_version")
"""Right in every call, as the contents change with each; of no use to a cheat."""

WORDS = {
    "between_samples": "a thread of the function",
    "check_patched": "replaced regatta_worker.case.difference",
    "clock_patched": "replaced time.perf_counter_ns",
    "harness_patched": "replaced regatta_worker.clock.timing.take_samples",
    "lazy_object": "as _Lazy",
    "lazy_subclass": "may compute when it is looked at",
    "thread_later": "changed after the call had returned",
    "writes_into_inputs": "wrote into its input q",
}
"""The messages about those that results do not show."""

HERE = cheats.cheats({"torch"} if support.installed("torch") else set())


def found(name: str) -> str:
    """The refusal of one invocation of a cheat; empty if it is timed."""
    with support.StartedWorker(("--file", cheats.__file__, "--function", name)) as worker:
        prepared = worker.prepare(name, layout="bhsd", heads=8, seq_q=128, head_dim=32)
        if prepared["type"] != "prepared":
            return str(prepared["reason"])
        plan = {"samples": 10, "min_samples": 5, "warmup": 2, "budget_ms": 1000}
        measured = worker.ask("measure", **support.PLAN | plan)
        if measured["type"] != "measured":
            return str(measured["reason"])
        error = measured["checked"]["errors"]["out"]["relative_l2"]
        return "" if error is not None and error <= LIMIT else f"wrong result after timing: {error}"


@pytest.mark.parametrize("name", HERE)
def test_a_cheat_is_found(name: str) -> None:
    said = next(filter(None, (found(name) for _ in range(INVOCATIONS))), "")
    if name in HONEST:
        assert not said
    else:
        assert WORDS.get(name, "wrong result after timing") in said


def test_each_says_what_it_does_and_words_are_of_cheats() -> None:
    everything = cheats.cheats({"torch", "cuda"})
    assert len(everything) > 24
    assert all(function.__doc__ for function in everything.values())
    assert set(WORDS) <= set(everything)
    assert Path(cheats.__file__).name == "cheats.py"
