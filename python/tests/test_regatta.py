"""The thin module: suites it writes, what it says of functions, figures, and where the program is.

With `REGATTA_PROGRAM` and NumPy a comparison and a gate are made as well.
"""

import ast
import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tomllib

import regatta
import support
from regatta import executable, measuring, pytest_plugin, results

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
        suite = tomllib.loads(measuring.suite({"base": here, "head": there}, problems))
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
                measuring.suite({"base": function}, {"seq": 64})

    def test_arguments_of_another_kind_are_refused_with_the_right_one(self) -> None:
        wrong: list[tuple[Any, Any, str]] = [
            (None, {"seq": 64}, "None is in no file"),
            (functools.partial(here), {"seq": 64}, "is in no file"),
            ({"seq": 64}, {"seq": 64}, "is in no file"),
            (here, there, "`compare` takes two functions before it"),
            (here, [here], "give a mapping of axes"),
            (here, {"dtype": object}, "cannot be a value of an axis"),
        ]
        for function, problem, words in wrong:
            with pytest.raises(regatta.RegattaError, match=words):
                regatta.bench(function, problem)
            with pytest.raises(regatta.RegattaError, match=words):
                regatta.compare(function, there, problem)

    def test_axes_may_be_numpys_numbers(self) -> None:
        numpy = pytest.importorskip("numpy")
        problem = {"seq": numpy.array([64, 128]), "heads": numpy.int64(2)}
        sweep = tomllib.loads(measuring.suite({"mine": here}, problem))["sweep"][0]
        assert (sweep["seq"], sweep["heads"]) == ([64, 128], 2)

    def test_a_file_that_measures_while_it_is_imported_is_refused(self) -> None:
        with (
            mock.patch.dict(os.environ, {measuring.WITHIN: "1"}),
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
    assert [row.word for row in compared.rows] == ["regressed"]
    # On loud cores the wall's clock alone may be inconclusive where CPU time is not.
    assert "regressed" in {metric.word for metric in compared.rows[0].metrics.values()}
    assert compared.judgement["paired"]
    assert "FAILED" in str(compared)
    assert compared.page.is_file()
    assert regatta.load(tmp_path / "reports").outcome == "failed"
    with pytest.raises(regatta.RegattaError, match="sequ"):
        regatta.compare(bench.once, bench.thrice, {"sequ": 128})
    monkeypatch.setenv("REGATTA_PROGRAM", "/bin/false")
    with pytest.raises(regatta.RegattaError, match="judged nothing"):
        regatta.compare(bench.once, bench.thrice, problem)


@pytest.mark.skipif(not CAN_MEASURE, reason="REGATTA_PROGRAM names no regatta, or no NumPy")
def test_a_function_is_measured_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one_bench.py").write_text(BENCH)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    function = importlib.import_module("one_bench").once
    words = ["--invocations", "1", "--output", "csv=tables", "-ojunit=j.xml"]
    result = regatta.bench(function, *words, seq=[64, 96], head_dim=32, progress=True)
    assert (tmp_path / "tables" / "cases.csv").is_file() and (tmp_path / "j.xml").is_file()
    assert [row.case for row in result.rows] == ["mine/once:s64,d32", "mine/once:s96,d32"]
    # Other programs may disturb one of the two so much that it is refused.
    assert any(row.head and row.head.median_ns > 0 for row in result.rows)
    assert "report:" in capsys.readouterr().err
    assert "<iframe sandbox" in result._repr_html_()
    assert repr(result).startswith(f"<Result {result.outcome}: ") and len(repr(result)) < 300
    folder = result.page.parent
    del result
    assert not folder.exists()
    assert not list(tmp_path.glob("regatta-*"))


def test_the_page_uses_what_the_module_has() -> None:
    page = (support.ROOT / "docs" / "PYTHON.md").read_text()
    blocks = [part.removeprefix("py\n") for part in page.split("```")[1::2]]
    nodes = [node for block in blocks for node in ast.walk(ast.parse(block))]
    names = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "regatta"
    }
    assert {"bench", "compare", "run", "gate", "load"} <= names <= set(regatta.__all__)


class TestResults:
    ROW = {  # noqa: RUF012
        "case": "mine/f:s64,d32",
        "word": "regressed",
        "head": {"median_ns": 3.0, "invocations_ns": [3.0, 1.0, 5.0, 2.0, 4.0], "tflops": 1.5},
        "base": {"median_ns": 2.0, "invocations_ns": [2.0]},
        "metrics": [
            {
                "metric": "device",
                "word": "regressed",
                "base": 2.0,
                "head": 3.0,
                "ratio": 1.6,
                "threshold": 0.05,
                "low": 1.5,
                "high": 1.7,
            }
        ],
        "findings": [{"cause": "recompiled", "evidence": "registers 122 → 125 of kernel"}],
    }
    VERDICT = {"outcome": "failed", "reasons": ["worst regression"], "shown": "1 regressed"}  # noqa: RUF012

    def result(self) -> regatta.Result:
        return regatta.Result(
            "text", {"rows": [self.ROW], "verdict": self.VERDICT}, Path("none.html")
        )

    def test_rows_have_times_changes_and_causes(self) -> None:
        result = self.result()
        (row,) = result.rows
        assert (result.outcome, result.reasons, str(result)) == (
            "failed",
            ["worst regression"],
            "text",
        )
        assert row.head and row.base
        assert (row.head.median_ns, row.head.tflops, row.base.interval_ns) == (3.0, 1.5, None)
        assert row.head.interval_ns == (1.0, 5.0)
        change = row.metrics["device"]
        assert (change.ratio, change.low, change.high, change.detectable) == (1.6, 1.5, 1.7, None)
        assert row.causes == ("recompiled: registers 122 → 125 of kernel",)
        assert result._repr_html_() == "<pre>text</pre>"

    def test_a_frame_has_a_line_a_case(self, monkeypatch: pytest.MonkeyPatch) -> None:
        frame = mock.Mock()
        monkeypatch.setitem(sys.modules, "pandas", mock.Mock(DataFrame=frame))
        self.result().to_pandas()
        (line,) = frame.call_args.args[0]
        assert (line["head_low_ns"], line["head_high_ns"], line["base_low_ns"]) == (1.0, 5.0, None)
        assert (line["device_word"], line["device_ratio"]) == ("regressed", 1.6)

    @pytest.mark.parametrize(
        ("number", "rank"), [(5, 0), (7, 0), (8, 1), (10, 1), (20, 5), (35, 12)]
    )
    def test_intervals_are_those_of_the_binomial(self, number: int, rank: int) -> None:
        # qbinom(0.05, n, 0.5), less 1: R's order statistics of the median's interval at 90 %.
        values = tuple(float(value) for value in range(number))
        assert results.Timing(0.0, values).interval_ns == (rank, number - 1 - rank)


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
