"""Scripts as they are: which calls are cases, what the script gets, and what is said of scripts
that cannot be served."""

import functools
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regatta_worker.script import places, timers
from regatta_worker.script.timers import quantile
from support import StartedWorker

TRITON = """
    def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
        raise SystemExit("the script's own timer ran")

    def do_bench_cudagraph(fn, rep=20, grad_to_none=None, quantiles=None, return_mode="mean"):
        raise SystemExit("the script's own timer ran")

    class Benchmark:
        def __init__(self, x_names, x_vals, line_arg, line_vals, args):
            self.x_names, self.x_vals, self.plot_name = x_names, x_vals, "plot"
            self.line_arg, self.line_vals, self.args = line_arg, line_vals, args

    class Mark:
        def __init__(self, fn, benchmark):
            self.fn, self.benchmark = fn, benchmark
        def run(self, **kwargs):
            return self._run(self.benchmark, **kwargs)
        def _run(self, bench, save_path="", show_plots=False, print_data=False):
            import matplotlib_that_is_not_there

    def perf_report(benchmark):
        return lambda fn: Mark(fn, benchmark)
"""

TORCH_TIMER = """
    class Timer:
        def __init__(self, stmt="pass", setup="pass", globals=None, label=None, sub_label=None,
                     description=None, num_threads=1):
            from torch.utils.benchmark.utils.common import TaskSpec
            self._globals, self._language = dict(globals or {}), "Language.PYTHON"
            self._task_spec = TaskSpec(stmt, setup, label, sub_label, description, num_threads)
        def timeit(self, number=1000000):
            raise SystemExit("the script's own timer ran")
        blocked_autorange = adaptive_autorange = timeit
"""

TORCH_COMMON = """
    import contextlib, dataclasses, statistics

    @dataclasses.dataclass
    class TaskSpec:
        stmt: str
        setup: str
        label: str
        sub_label: str
        description: str
        num_threads: int

    @dataclasses.dataclass
    class Measurement:
        number_per_run: int
        raw_times: list
        task_spec: TaskSpec
        @property
        def median(self):
            return statistics.median(self.raw_times)

    threads = []

    @contextlib.contextmanager
    def set_torch_threads(number):
        threads.append(number)
        yield
"""

FAKES = {
    "triton/__init__.py": "",
    "triton/testing.py": TRITON,
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/benchmark/__init__.py": "from torch.utils.benchmark.utils.timer import Timer",
    "torch/utils/benchmark/utils/__init__.py": "",
    "torch/utils/benchmark/utils/common.py": TORCH_COMMON,
    "torch/utils/benchmark/utils/timer.py": TORCH_TIMER,
    "torch/_inductor/__init__.py": "",
    "torch/_inductor/utils.py": """
        def do_bench_using_profiling(fn, warmup=25, rep=100, is_vetted_benchmarking=False):
            raise SystemExit("the script's own timer ran")
    """,
    "pyperf/__init__.py": "from pyperf._runner import Runner",
    "pyperf/_runner.py": """
        class Runner:
            def bench_func(self, name, func, *args):
                raise SystemExit("the script's own timer ran")
            timeit = bench_time_func = bench_async_func = bench_command = bench_func
    """,
    "flashinfer/__init__.py": "",
    "flashinfer/testing/__init__.py": "from flashinfer.testing.utils import bench_gpu_time",
    "flashinfer/testing/utils.py": """
        def bench_gpu_time(fn, dry_run_iters=None, repeat_iters=None, input_args=(),
                           input_kwargs=None, use_cuda_graph=False):
            raise SystemExit("the script's own timer ran")
    """,
}


def write(folder: Path, script: str, **more: str) -> str:
    """A script beside modules that stand in for the libraries whose timers it calls."""
    for name, text in FAKES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    for name, text in more.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    path = folder / "bench.py"
    path.write_text(textwrap.dedent(script))
    return str(path)


def started(script: str, *arguments: str) -> StartedWorker:
    return StartedWorker(("--script", script, "--name", "bench.py", "--", *arguments))


def listed(script: str, *arguments: str) -> list[dict[str, Any]]:
    with started(script, *arguments) as worker:
        assert worker.hello["type"] == "hello", worker.hello
        assert worker.hello["lists"] and not worker.hello["variants"]
        reply = worker.ask("list")
    assert reply["type"] == "listed", reply
    cases: list[dict[str, Any]] = reply["cases"]
    return cases


def named(cases: list[dict[str, Any]]) -> list[str]:
    return [str(places.Place(case["variant"], case["params"], "")) for case in cases]


def names(script: str, *arguments: str) -> list[str]:
    return named(listed(script, *arguments))


def refused(script: str, *arguments: str, request: str = "") -> str:
    """The reason for which a script fails: its hello, its list, or either."""
    with started(script, *arguments) as worker:
        asked, reply = "hello", worker.hello
        if reply["type"] == "hello":
            asked, reply = "list", worker.ask("list")
    assert reply["type"] == "failed", reply
    assert request in ("", asked)
    return str(reply["reason"])


def test_calls_are_named_by_function_and_simple_values(tmp_path: Path) -> None:
    script = """
        import sys, timeit

        def double(values):
            return [2 * value for value in values]

        def run(fn, size, dtype="float32", shape=(4, 8), _hidden=1, scale=0.5):
            took = 0.123456789
            values = list(range(size))
            return timeit.timeit(lambda: fn(values), number=3)

        for size in (8, 16):
            first = run(double, size)
            assert first > 0
            timeit.repeat("double(values)", globals={"double": double, "values": [size]},
                          repeat=2, number=5)
        timeit.timeit(lambda: None)
        timeit.timeit(lambda: None)
        print("done", sys.argv[1:])
    """
    inner = "run.fn:dtype=float32,fn=double,scale=0.5,shape=4x8,size="
    assert names(write(tmp_path, script), "--quick") == [
        f"{inner}8",
        "double:size=8",
        f"{inner}16",
        "double:size=16",
        "bench",
        "bench.2",
    ]


def test_a_call_that_waits_is_named_by_what_it_waits_for(tmp_path: Path) -> None:
    script = """
        import timeit

        class Array:
            def block_until_ready(self):
                return self

        def softmax(x):
            return Array()

        def block_until_ready(x):
            return x

        x = Array()
        timeit.timeit(lambda: softmax(x).block_until_ready(), number=1)
        timeit.timeit(lambda: block_until_ready(softmax(1)), number=1)
        timeit.timeit("softmax(2).block_until_ready()", number=1, globals=globals())
        timeit.timeit(lambda: x.block_until_ready(), number=1)
    """
    assert names(write(tmp_path, script)) == [
        "softmax",
        "softmax.2",
        "softmax.3",
        "block_until_ready",
    ]


PERFPLOT = """
    import time, timeit

    def bench(kernels, data):
        for kernel in kernels:
            shortest = 0
            while shortest <= 10:
                times = timeit.repeat(stmt=lambda: kernel(*data), repeat=3, number=1,
                                      timer=time.perf_counter_ns)
                shortest = min(times)
            assert all(type(one) is int for one in times)
            assert 1_000_000 < timeit.Timer(lambda: time.sleep(1e-3), timer=time.time_ns).timeit(1)
"""


def test_a_library_that_times_in_nanoseconds_gets_them_and_names_the_script_s_functions(
    tmp_path: Path,
) -> None:
    script = """
        import perfplot

        def reverse(values):
            return values[::-1]

        perfplot.bench([sorted, reverse], [list(range(1000))])
    """
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "perfplot.py").write_text(textwrap.dedent(PERFPLOT))
    path = write(
        tmp_path,
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path / "site-packages")!r})
    {script}""",
    )
    assert names(path) == ["sorted", "sleep", "reverse", "sleep.2"]


def test_functions_that_a_script_registers_for_its_end_are_called(tmp_path: Path) -> None:
    script = """
        import atexit, timeit

        def bench(size):
            timeit.timeit(lambda: sorted(range(size)), number=1)

        atexit.register(bench, 8)
        atexit.register(bench, size=16)
        atexit.register(lambda: 1 / 0)

        @atexit.register
        def never():
            bench(99)

        atexit.unregister(never)
    """
    assert names(write(tmp_path, script)) == ["bench.sorted:size=16", "bench.sorted:size=8"]


def test_a_list_that_a_loop_runs_over_names_nothing(tmp_path: Path) -> None:
    script = """
        import timeit

        def sweep(kinds, sizes, shape):
            for kind in kinds:
                for at, size in enumerate(sizes):
                    timeit.timeit(lambda: sorted(range(size)), number=1)

        sweep(["a", "b"], (4, 8), (1, 2))
    """
    assert names(write(tmp_path, script)) == [
        f"sweep.sorted:kind={kind},shape=1x2,size={size}" for kind in "ab" for size in (4, 8)
    ]


def test_words_of_an_enum_a_dictionary_and_a_while_loop_are_values(tmp_path: Path) -> None:
    script = """
        import enum, os, tempfile, timeit, uuid

        class Mode(enum.Enum):
            FAST = 1
            SLOW = 2

        def call(conf, run_id, folder, results):
            for name, number in results.items():
                results[name] = timeit.timeit(lambda: sorted([1]), number=number)

        for mode in Mode:
            timeit.timeit(lambda: sorted([1]), number=1)
        for conf in ({"n": 3, "m": "x", "rate": 0.5}, {"n": 6, "m": "x", "rate": 0.5}):
            timeit.timeit(lambda: sorted([1]), number=1)
            # Others in each process.
            call(conf, str(uuid.uuid4()), tempfile.mkdtemp(), {"a": 1})
        n, most = 2, 4
        while n <= most:
            timeit.timeit(lambda: sorted([1]), number=1)
            n *= 2
    """
    assert names(write(tmp_path, script)) == [
        "sorted:mode=FAST",
        "sorted:mode=SLOW",
        *(
            f"{function}sorted:m=x,n={n}{own}"
            for n in (3, 6)
            for function, own in (("", ""), ("call.", ",name=a,number=1"))
        ),
        "sorted:n=2",
        "sorted:n=4",
    ]


@pytest.mark.parametrize("is_temporary", [False, True])
def test_files_have_their_path_from_the_folder_that_the_script_starts_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_temporary: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(Path.cwd().parent if is_temporary else tmp_path))
    script = """
        import os, pathlib, timeit
        here = pathlib.Path(os.getcwd())
        for path in (here / "data" / "a.bin", here / ("long" * 20) / "b.bin"):
            timeit.timeit(lambda: sorted([1]), number=1)
            for text in (str(path),):
                timeit.timeit(lambda: sum([1]), number=1)
    """
    assert names(write(tmp_path, script)) == [
        "sorted:path=data/a.bin",
        "sum:path=data/a.bin,text=data/a.bin",
        "sorted:path=b.bin",
        "sum:path=b.bin,text=b.bin",
    ]


def test_benchmarks_of_pyperf_have_their_names(tmp_path: Path) -> None:
    script = """
        import pyperf

        runner = pyperf.Runner()
        for size in (4, 8):
            runner.bench_func("sort it", sorted, list(range(size)))
        assert runner.timeit("sorted(x)", setup="x = [2, 1]") is None

        def loops(number, what):
            assert (number, what) == (1, "what")
            return 0.5

        async def later():
            return 1

        runner.bench_time_func("own", loops, "what", inner_loops=2)
        runner.bench_async_func(name="later", func=later)
        runner.bench_command("command", ["/bin/sh", "-c", "exit 3"])
    """
    path = write(tmp_path, script.replace("exit 3", "exit 0"))
    assert names(path) == [
        "sorted:name=sort-it,size=4",
        "sorted:name=sort-it,size=8",
        "sorted:name=sorted-x",
        "loops:name=own",
        "later:name=later",
        "sh:name=command",
    ]
    assert "returned non-zero exit status 3" in refused(write(tmp_path, script), request="list")


def test_calls_in_comprehensions_have_their_variables(tmp_path: Path) -> None:
    script = """
        import timeit

        def sweep(sizes):
            return {
                size: [timeit.timeit(lambda: sorted(range(size)), number=1) for kind in "ab"]
                for size in sizes
            }

        sweep((4, 8))
        rates = [1e9 / timeit.timeit(lambda: sorted(range(n)), number=1) for n in [2]]
    """
    within = [f"sweep.sorted:kind={kind},size={size}" for size in (4, 8) for kind in "ab"]
    assert names(write(tmp_path, script)) == [*within, "sorted:n=2"]


def test_what_timers_measured_names_nothing() -> None:
    kept = functools.partial(places.simplified, returned={0.5})
    values = [
        kept("x", value) for value in (0.5, 0.1 + 0.2, 1.23456789, 1 << 50, "007", "auto", "a b")
    ]
    assert values == [None, "0.3", None, None, 7, None, "a-b"]
    assert [kept(name, 1) for name in ("_x", "self", "n")] == [None, None, 1]
    assert kept("shape", (4, 8)) == "4x8"
    assert kept("flags", [True, False]) == "yesxno"


def test_each_timer_gives_the_script_what_it_would(tmp_path: Path) -> None:
    script = """
        import timeit, triton.testing
        from triton.testing import do_bench
        from torch.utils.benchmark import Timer
        from torch.utils.benchmark.utils import common
        from torch._inductor.utils import do_bench_using_profiling
        from flashinfer.testing import bench_gpu_time

        calls = []
        def work(size=1):
            calls.append(size)

        assert isinstance(do_bench(lambda: work()), float)
        low, middle, high = triton.testing.do_bench(lambda: work(2), quantiles=[0.2, 0.5, 0.8])
        assert low <= middle <= high
        assert isinstance(do_bench(lambda: work(3), quantiles=[0.5]), float)
        assert isinstance(do_bench(lambda: work(4), return_mode="all"), list)
        assert triton.testing.do_bench_cudagraph(lambda: work(5)) > 0
        measured = Timer("work(n)", globals={"work": work, "n": 6}, label="works",
                         sub_label="six", num_threads=2).blocked_autorange()
        assert measured.median > 0 and measured.task_spec.label == "works"
        assert common.threads == [2]
        assert all(time > 0 for time in bench_gpu_time(work, input_args=(7,)))
        timer = timeit.Timer("work(m)", "m = 8", globals={"work": work})
        assert timer.timeit(10) > 0 and len(timer.repeat(3, 10)) == 3
        loops, total = timer.autorange()
        assert loops > 0 and total > 0
        assert do_bench_using_profiling(lambda: work(9), is_vetted_benchmarking=True) > 0
        assert set(calls) == set(range(1, 10))
    """
    assert names(write(tmp_path, script)) == [
        "work",
        "work.2",
        "work.3",
        "work.4",
        "work.5",
        "work:label=works,num_threads=2,sub_label=six",
        "work.6",
        "work.7",
        "work.8",
        "work.9",
        "work.10",
    ]


def test_a_setup_precedes_each_call_of_a_repeat_of_one(tmp_path: Path) -> None:
    script = """
        import timeit

        def ordered(values):
            assert values == [3, 1, 2], "a call before left them sorted"
            values.sort()

        timeit.repeat("ordered(values)", "values = [3, 1, 2]", number=1, globals=globals())
        timeit.timeit("values.sort()", "import math; values = [3, 1, 2]", number=2)
    """
    path = write(tmp_path, script)
    assert measured(path, listed(path))


def test_perf_report_names_its_values_and_tuning_is_no_case(tmp_path: Path) -> None:
    tuner = """
        import sys
        from triton.testing import do_bench
        def tune():
            globals()["__name__"] = "triton.runtime.autotuner"
            try:
                do_bench(lambda: None)
            except SystemExit as real:
                return str(real)
    """
    script = """
        import tuner, triton.testing

        @triton.testing.perf_report(triton.testing.Benchmark(
            x_names=["N"], x_vals=[4, 8], line_arg="provider", line_vals=["list"], args={"M": 2}))
        def bench(N, M, provider):
            assert tuner.tune() == "the script's own timer ran"
            return triton.testing.do_bench(lambda: sorted(range(N)))

        bench.run(print_data=True)
    """
    assert names(write(tmp_path, script, tuner=tuner)) == [
        "bench.sorted:M=2,N=4,provider=list",
        "bench.sorted:M=2,N=8,provider=list",
    ]


SIZES = """
    import random, timeit
    for size in (4, 8, 16):
        values = [random.random() for _ in range(size)]
        took = timeit.timeit(lambda: sorted(values), number=2)
        print("size", size, took)
"""


def prepared(worker: StartedWorker, case: dict[str, Any]) -> dict[str, Any]:
    about = {name: case[name] for name in ("variant", "params")}
    return worker.ask("prepare", problem={}, seed=1, **about)


PLAN = {"warmup": 1, "samples": 8, "min_samples": 3, "budget_ms": 1000, "cache": "hot"}


def measured(script: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases as they are measured, each with the results that were listed."""
    found = []
    with started(script) as worker:
        for case in cases:
            assert prepared(worker, case)["outputs"] == case["outputs"]
            found.append(worker.ask("measure", **PLAN))
            assert len(found[-1]["device_ns"]) == PLAN["samples"]
    return found


def test_a_call_is_measured_in_turns_and_the_script_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path, SIZES)
    cases = listed(path)
    with started(path) as worker:
        for case in (cases[0], cases[2]):
            assert prepared(worker, case)["type"] == "prepared"
            paused = worker.ask("measure", pause_every=4, **PLAN)
            assert paused["type"] == "paused"
            measured = worker.ask("resume", last=True)
            assert len(measured["device_ns"]) == 8
            assert "call_peak_bytes" in worker.ask("census")["counts"]
            assert worker.ask("release")["type"] == "released"
        again = prepared(worker, cases[1])
        assert again["type"] == "unavailable"
        assert "bench.py came to sorted:size=8 earlier" in again["reason"]
        unknown = {"variant": "sorted", "params": {"size": 5}}
        reason = prepared(worker, unknown)["reason"]
        assert reason.startswith("bench.py ended without the call sorted:size=5"), reason
        assert reason.endswith(
            "it made sorted:size=4; if size differs from process to process, call it `_size`, "
            "which a case's name leaves out"
        )


def test_a_script_that_leaves_by_os_exit_is_measured(tmp_path: Path) -> None:
    script = """
        import os, sys, timeit
        timeit.timeit(lambda: sorted([3]), number=1)
        if (child := os.fork()) == 0:
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        os._exit(int(sys.argv[1]))
    """
    path = write(tmp_path, script)
    assert names(path, "0") == ["sorted"]
    assert "bench.py:7 ended by os._exit(3) (after 1" in refused(path, "3", request="list")


def test_sides_draw_the_same_numbers_however_often_a_call_is_made(tmp_path: Path) -> None:
    script = """
        import timeit
        import numpy as np
        for size in (8, 16):
            x = np.random.standard_normal(size)
            y = np.random.default_rng().standard_normal(size)
            timeit.timeit(lambda: (x + np.random.random(size), y, {"z": [x.astype(np.int32)]}))
    """
    path = write(tmp_path, script)
    cases = listed(path)
    assert [[out["shape"] for out in case["outputs"]] for case in cases] == [[[8]] * 3, [[16]] * 3]
    assert [out["dtype"] for out in cases[0]["outputs"]] == ["float64", "float64", "int32"]
    assert measured(path, cases)


def test_a_case_has_no_memory_of_another(tmp_path: Path) -> None:
    """Else one that keeps memory makes all that follow worse."""
    script = """
        import sys, timeit
        kept = []

        def keep(size):
            if not kept:
                kept.append(b"x" * size)

        def use(size):
            return b"y" * size

        timeit.timeit(lambda: keep(int(sys.argv[1])), number=1)
        timeit.timeit(lambda: use(1 << 25), number=1)
    """
    path = write(tmp_path, script)
    peaks = []
    for size in (0, 1 << 27):
        keep, use = listed(path, str(size))
        with started(path, str(size)) as worker:
            for case in (keep, use):
                prepared(worker, case)
                peaks.append(worker.ask("measure", **PLAN)["peak_bytes"] >> 20)
    # Others of the process, such as its threads, take some.
    assert abs(peaks[2] - peaks[0] - 128) < 8
    assert abs(peaks[3] - peaks[1]) < 8
    assert abs(peaks[1] - peaks[0] - 32) < 8


def test_a_call_that_raises_fails_alone(tmp_path: Path) -> None:
    script = """
        import timeit
        def broken(size):
            raise ValueError(f"no {size}")
        for function in (broken, sorted):
            try:
                timeit.timeit(lambda: function([3]), number=1)
            except ValueError as error:
                print("caught", error)
    """
    path = write(tmp_path, script)
    (case,) = listed(path)
    assert case["params"] == {"function": "sorted"}
    with started(path) as worker:
        broken = prepared(worker, {"variant": "function", "params": {"function": "broken"}})
        assert broken["type"] == "failed"
        assert broken["reason"] == "bench.py:7: the call raised bench.py:4: ValueError: no [3]"
        assert prepared(worker, case)["type"] == "prepared"


REFUSED = {
    "x = 1": "bench.py ended and called no timer that is known",
    "import timeit": "triton.testing.do_bench_cudagraph); it imported timeit. Does",
    "import sys; sys.exit(3)": "ended by sys.exit(3) and called no timer",
    "x = 1\ninput()": "bench.py:2: EOFError: EOF when reading a line: the script asks",
    "import sys\nint(sys.stdin.readline())": (
        "with base 10: '': the script asks for input, but has no input"
    ),
    "import sys\nfor line in sys.stdin: pass": "none. The script asks for input",
    "import argparse\nparser = argparse.ArgumentParser(prog='bench')\n"
    "parser.add_argument('--rows', required=True)\nparser.parse_args()": (
        "sys.exit(2) (it printed: bench: error: the following arguments are required: --rows)"
    ),
    "import os, timeit\n"
    "if os.fork() == 0: timeit.timeit(lambda: 1, number=1); os._exit(0)\nos.wait()": (
        "it imported timeit. Timers that other processes call are not seen"
    ),
    "get_ipython().run_line_magic('timeit', '1')": "only IPython has it: time by",
    "import nowhere_to_be": "No module named 'nowhere_to_be'. Is it installed",
    "x = (": "bench.py:1: SyntaxError",
    "import threading, timeit\n"
    "t = threading.Thread(target=lambda: timeit.timeit(lambda: 1), name='own')\n"
    "t.start(); t.join()": "bench.py:2 calls timeit in a thread (own): call it in the main thread",
    "import triton.testing\n"
    "def mine(fn): return 1.0\n"
    "triton.testing.do_bench = mine\n"
    "triton.testing.do_bench(lambda: 1)": "triton.testing.do_bench was replaced by",
}
FAILED = {
    "import timeit\nasync def work(): pass\ntimeit.timeit(work, number=1)": (
        "bench.py:3: work returns a coroutine, which has not run"
    ),
    "import timeit\ntimeit.timeit(lambda: 1)\nassert 1 > 2, 'too slow'": (
        "bench.py:3: AssertionError: too slow (after 1 call of timers)"
    ),
    "import sys, timeit\ntimeit.timeit(lambda: 1)\nsys.exit('results differ')": (
        "bench.py:3 ended by sys.exit('results differ') (after 1 call of timers); have it end"
    ),
}


@pytest.mark.parametrize("script", [*REFUSED, *FAILED])
def test_what_is_said_of_a_script_that_cannot_be_served(tmp_path: Path, script: str) -> None:
    asked, rows = ("hello", REFUSED) if script in REFUSED else ("list", FAILED)
    assert rows[script] in refused(write(tmp_path, script), request=asked)


def test_a_timed_function_that_ends_the_process_is_named(tmp_path: Path) -> None:
    script = """
        import os, sys, timeit
        count = 0
        def leaves(by):
            global count
            count += 1
            if count > limit:
                by(7)
        def main(by):
            timeit.timeit(lambda: leaves(by), number=1)
        limit = int(sys.argv[3])
        main(getattr(sys.modules[sys.argv[1]], sys.argv[2]))
    """
    path = write(tmp_path, script)
    with started(path, "sys", "exit", "1") as worker:
        case = {"variant": "main.leaves", "params": {"by": "exit"}}
        assert prepared(worker, case)["type"] == "prepared"
        failed = worker.ask("census")
        assert failed["type"] == "failed"
        assert failed["reason"] == "bench.py:8: leaves called sys.exit(7)"
    worker = started(path, "os", "_exit", "0")
    with pytest.raises(json.JSONDecodeError):
        worker.ask("list")
    assert worker.exit_status() == 7
    words = "error: bench.py:8: leaves called os._exit(7) in the case main.leaves:by=_exit"
    assert words.encode() in worker.log, worker.log


def test_a_part_of_a_package_that_no_build_made_is_named(tmp_path: Path) -> None:
    package = tmp_path / "fast"
    package.mkdir()
    (package / "__init__.py").write_text("from fast._c import total")
    words = refused(write(tmp_path, "import fast"), request="hello")
    assert f"No module named 'fast._c'. If a build makes it in {package}, as an" in words


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "none.py cannot be read: No such file" in refused(
        str(tmp_path / "none.py"), request="hello"
    )


def test_nothing_is_imported_that_the_script_does_not_import(tmp_path: Path) -> None:
    script = """
        import sys, timeit
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"numpy", "torch", "triton", "flashinfer", "jax"}, loaded
        assert __name__ == "__main__" and sys.modules["__main__"].timeit is timeit
        timeit.timeit("work()", "from __main__ import work", number=1) if False else None
        def work():
            return 1
        timeit.timeit("work()", "from __main__ import work", number=1)
    """
    assert names(write(tmp_path, script)) == ["work"]


def test_a_child_of_the_script_times_by_itself(tmp_path: Path) -> None:
    script = """
        import os, timeit
        child = os.fork()
        if not child:
            os._exit(0 if timeit.timeit(lambda: 1, number=10) < 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        timeit.timeit(lambda: 1, number=10)
    """
    assert names(write(tmp_path, script)) == ["bench"]


def test_each_call_of_jax_has_ended_when_its_time_is_read(tmp_path: Path) -> None:
    jax = """
        running = []

        class Array:
            shape, dtype = (), "float32"

        def dispatch():
            assert not running, "the call before runs still"
            running.append(Array())
            return running[0]

        def block_until_ready(results):
            running.clear()
            return results
    """
    path = write(tmp_path, "import jax, timeit\ntimeit.timeit(jax.dispatch, number=3)", jax=jax)
    assert len(measured(path, listed(path))) == 1


def test_numbers_of_numpy_are_values() -> None:
    values = [np.int64(3), np.float64(0.5), np.bool_(True), np.array(4), np.dtype("int8")]
    words = [places.simplified("rows", value, set()) for value in values]
    assert words == [3, "0.5", "yes", 4, "int8"]


def test_quantiles_are_interpolated() -> None:
    assert [quantile([1.0, 2.0, 4.0], share) for share in (0, 0.25, 0.5, 1)] == [1, 1.5, 2, 4]
    value = timers.milliseconds(None, "max")
    assert value([2e6, 1e6]) == 2.0
