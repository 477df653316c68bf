"""The thin module: suites it writes, what it says of functions, figures, and where the program is.

With `REGATTA_PROGRAM` and NumPy a comparison and a gate are made as well.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tomllib

import regatta
from regatta import comparison, executable, pytest_plugin

CAN_MEASURE = "REGATTA_PROGRAM" in os.environ and importlib.util.find_spec("numpy") is not None

BENCH = """
import numpy as np

def once(q, k, v, problem):
    scores = np.einsum("bihd,bjhd->bhij", q, k) * np.float32(problem.scale)
    weights = np.exp(scores)
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v)

def thrice(q, k, v, problem):
    return [once(q, k, v, problem) for _ in range(3)][0]
"""


def here(q: Any, k: Any, v: Any) -> None: ...


def there(q: Any, k: Any, v: Any) -> None: ...


class TestSuites:
    def test_both_functions_are_workers_by_their_files(self) -> None:
        problems: list[dict[str, Any]] = [
            {"seq": [64, 128], "params": {"block": ["auto", 32]}},
            {"mask": "causal"},
        ]
        suite = tomllib.loads(comparison.suite(here, there, problems))
        file = Path(__file__).resolve()
        assert suite["workers"]["base"] == f"{file}:here"
        assert suite["workers"]["head"] == f"{file}:there"
        first, second = suite["sweep"]
        assert first["variants"] == ["base/here", "head/there"]
        assert first["params"] == {"block": ["auto", 32]}
        assert (first["seq"], second["mask"]) == ([64, 128], "causal")

    def test_a_function_in_no_file_is_refused_with_the_way_out(self) -> None:
        for function in (lambda q, k, v: q, print, eval("lambda: 0")):
            with pytest.raises(regatta.RegattaError, match="%%writefile bench.py"):
                comparison.suite(function, here, {"seq": 64})

    def test_a_file_that_compares_while_it_is_imported_is_told_so(self) -> None:
        with (
            mock.patch.dict(os.environ, {comparison.WITHIN: "1"}),
            pytest.raises(regatta.RegattaError, match='__name__ == "__main__"'),
        ):
            regatta.compare(here, there, {"seq": 64})


def test_what_is_left_out_is_not_said() -> None:
    marked: Any = regatta.variant(dtypes=["f32"], tf32=False)(here)
    assert marked == here
    assert marked.regatta_variant == {"dtypes": ("f32",), "tf32": False}
    assert issubclass(regatta.Unsupported, NotImplementedError)


def test_a_program_that_is_not_there_is_said_with_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sysconfig.get_path", lambda *scheme: "/nowhere")
    monkeypatch.delenv("REGATTA_PROGRAM", raising=False)
    with pytest.raises(regatta.RegattaError, match="REGATTA_PROGRAM"):
        executable.program()


@pytest.mark.skipif(not CAN_MEASURE, reason="REGATTA_PROGRAM names no regatta, or no NumPy")
def test_three_times_the_work_is_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_bench.py").write_text(BENCH)
    monkeypatch.syspath_prepend(tmp_path)
    # Whoever else is on these cores does not keep three times the work from being seen.
    monkeypatch.setenv("REGATTA_WATCH", "no")
    bench = importlib.import_module("own_bench")
    problem = {"seq": 128, "head_dim": 32, "heads": 4}
    few = ("--invocations", "3")
    compared = regatta.compare(bench.once, bench.thrice, problem, *few, out=tmp_path / "reports")
    assert compared.outcome == "failed", compared
    assert [row["word"] for row in compared.rows] == ["regressed"]
    # On loud cores the wall's clock alone may be inconclusive where CPU time is not.
    assert "regressed" in {metric["word"] for metric in compared.rows[0]["metrics"]}
    assert compared.judgement["paired"]
    assert "FAILED" in str(compared)
    assert compared.page.is_file()
    with pytest.raises(regatta.RegattaError, match="sequ"):
        regatta.compare(bench.once, bench.thrice, {"sequ": 128})
    monkeypatch.setenv("REGATTA_PROGRAM", "/bin/false")
    with pytest.raises(regatta.RegattaError, match="judged nothing"):
        regatta.compare(bench.once, bench.thrice, problem)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (0, ""),
        (1, "something is worse"),
        (2, "said"),
        (3, "it is inconclusive"),
        (101, "said"),
    ],
)
def test_a_gate_hands_on_its_base_and_fails_the_test_unless_it_passes(
    code: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "stand-in"
    program.write_text(f'#!/bin/sh\necho "$@"\necho said >&2\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("REGATTA_PROGRAM", str(program))
    gate = pytest_plugin.Gate(tmp_path).gate
    if what:
        with pytest.raises(pytest.fail.Exception, match=f"gate speed.toml: {what}"):
            gate("speed.toml")
    else:
        assert gate("speed.toml", "--filter", "s64") == "gate ./speed.toml --quiet --filter s64\n"
        assert gate("a/b.toml", base="git:main") == "gate a/b.toml --quiet --base git:main\n"


@pytest.mark.skipif(not CAN_MEASURE, reason="REGATTA_PROGRAM names no regatta, or no NumPy")
def test_a_gate_passes_by_a_base_and_is_inconclusive_without_one(tmp_path: Path) -> None:
    (tmp_path / "own_bench.py").write_text(BENCH)
    suite = """
        description = "of its own"
        workers.own = "own_bench.py:once"
        sweep = [{ variants = "own/once", seq = 64, head_dim = 32 }]
    """
    (tmp_path / "own.toml").write_text(suite)
    gate = pytest_plugin.Gate(tmp_path).gate
    # Times alone may be inconclusive on a machine that others share.
    assert "passed" in gate("own.toml", "--structure-only", base="here")
    with pytest.raises(pytest.fail.Exception, match="it is inconclusive"):
        gate("own.toml", "--structure-only")
    with pytest.raises(pytest.fail.Exception, match="--no-such"):
        gate("own.toml", "--no-such")
