"""Files that declare benchmarks and call no timer: asv's, Hugging Face's, flash-linear-attention's,
pytest-benchmark's, `cases()`; and FlashInfer's list of command lines."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from test_script import listed, measured, named, names, prepared, refused, started, write

ASV = """
    import numpy as np

    def setup(*given):
        np.module_was_set_up = True

    class Sums:
        params = [[4, 8], ["float32", "float64"], [None, len]]
        param_names = ["size", "dtype", "key of sums"]
        number, repeat = 50, 3

        def setup(self, size, dtype, key):
            assert np.module_was_set_up
            if (size, dtype) == (8, "float32"):
                raise NotImplementedError("no eight")
            self.x = np.random.random(size).astype(dtype)
            self.y = np.empty(size, dtype)

        def teardown(self, size, dtype, key):
            del self.x

        def time_sum(self, size, dtype, key):
            np.cumsum(self.x)

        def time_out(self, size, dtype, key):
            for _ in range(2):
                np.negative(self.x, out=self.y)

        def peakmem_sum(self, size, dtype, key):
            raise SystemExit("not to be called")

        track_sum = timeraw_sum = peakmem_sum

    class Sort:
        number = 1

        def setup_cache(self):
            return np.random.random(64)

        def setup(self, values):
            self.values = values.copy()

        def time_sort(self, values):
            assert (np.diff(self.values) < 0).any(), "set up before each call"
            self.values.sort()

    def time_alone():
        np.arange(3)
"""


def shapes(case: dict[str, Any]) -> list[Any]:
    return [(out["shape"], out["dtype"]) for out in case["outputs"]]


def by_name(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The shapes of results, by the name and the values of their case, in the values' order."""
    values = [
        ",".join(f"{name}={value}" for name, value in case["params"].items()) for case in cases
    ]
    return {
        f"{case['variant']} {said}": shapes(case) for case, said in zip(cases, values, strict=True)
    }


def test_asv_has_a_case_for_each_combination_and_its_result(tmp_path: Path) -> None:
    path = write(tmp_path, ASV)
    found = by_name(listed(path))
    sums = [(4, "float32"), (4, "float64"), (8, "float64")]
    assert found == {
        f"Sums.{name} size={size},dtype={dtype},key_of_sums={key}": [([size], dtype)]
        for name in ("time_out", "time_sum")
        for size, dtype in sums
        for key in ("None", "len")
    } | {"Sort.time_sort ": [([64], "float64")], "time_alone ": [([3], "int64")]}
    assert names(path, "--benchmark", r"time_sum:.*size=4", "--benchmark", "alone") == [
        "Sums.time_sum:dtype=float32,key_of_sums=None,size=4",
        "Sums.time_sum:dtype=float32,key_of_sums=len,size=4",
        "Sums.time_sum:dtype=float64,key_of_sums=None,size=4",
        "Sums.time_sum:dtype=float64,key_of_sums=len,size=4",
        "time_alone",
    ]


def test_asv_is_measured_on_the_inputs_that_were_listed(tmp_path: Path) -> None:
    path = write(tmp_path, ASV)
    cases = listed(path)
    # Others are not even set up, and draw nothing.
    for each in measured(path, cases[3:5] + cases[-2:]):
        assert "results are not poisoned between calls" in each["input_sets_reason"]


def test_a_decorated_function_has_its_own_place(tmp_path: Path) -> None:
    decorator = """
        import functools

        def skipped(function):
            @functools.wraps(function)
            def wrapper(*given):
                return function(*given)
            return wrapper
    """
    script = "from marks import skipped\n\n\n@skipped\ndef time_sum():\n    sum((1, 2))\n"
    (case,) = listed(write(tmp_path, script, marks=decorator))
    assert case["place"] == "bench.py:4"


@pytest.mark.parametrize("package", [".", "benchmarks."])
def test_asv_imports_from_its_package(tmp_path: Path, package: str) -> None:
    # As networkx has it, where regatta starts above both.
    folder = tmp_path / "benchmarks" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    path = write(
        folder,
        f"""
        from {package}common import size
        class Few:
            def time_range(self):
                list(range(size))
        """,
        common="size = 3",
    )
    assert names(path) == ["Few.time_range"]


def test_a_setup_may_look_up_the_functions_that_it_knows(tmp_path: Path) -> None:
    script = """
        import numpy as np
        known = {np.empty: "as numba does"}
        class Few:
            def setup(self):
                assert np.empty.__name__ == "empty" and known[np.empty]
                assert np.empty(3).tolist() == [90, 90, 90]
            def time_range(self):
                list(range(3))
    """
    assert names(write(tmp_path, script)) == ["Few.time_range"]


HUB = """
    import numpy as np
    class Kernel:
        relu = staticmethod(lambda x: np.maximum(x, 0))
    def get_kernel(repository, revision):
        assert (repository, revision) == ("hub/relu", "v1")
        return Kernel
    def get_local_kernel(path):
        raise FileNotFoundError(f"no build in {path.name}")
"""
BENCHMARK = """
    class Benchmark:
        seed = None
        device = "elsewhere"
        def __init__(self):
            self.kernel = self.out = None
        def setup(self):
            pass
"""
TORCH = """
    import numpy as np
    from numpy import allclose
    Tensor = type("Tensor", (), {})
    manual_seed = np.random.seed
"""
RELU = """
    import numpy as np
    import torch
    from kernels.benchmark import Benchmark

    class Relu(Benchmark):
        seed = 42
        def setup(self):
            assert self.device == "cpu"
            self.x = np.random.standard_normal((8, 8)).astype(np.float32)
            self.out = np.empty_like(self.x)
        def benchmark_base(self):
            self.out = self.kernel.relu(self.x)
        def verify_base(self):
            return np.maximum(self.x, 0)
        def setup_large(self):
            self.x = np.random.standard_normal((16, 8)).astype(np.float32)
        benchmark_large = benchmark_base
        def verify_large(self):
            return np.maximum(self.x, 0) + 1
"""


def hugging_face(folder: Path, script: str) -> str:
    """A kernel's `benchmarks/bench.py`, with stand-ins for torch and Hugging Face's package."""
    path = write(folder / "benchmarks", script)
    stand_ins = {"kernels/__init__": HUB, "kernels/benchmark": BENCHMARK, "torch/__init__": TORCH}
    for name, text in stand_ins.items():
        file = folder / "benchmarks" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))
    return path


def test_a_workload_of_hugging_face_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELU", "v1")
    path = hugging_face(tmp_path, RELU)
    base, large = listed(path, "--kernel", "hub/relu@v1")
    assert [base["variant"], large["variant"]] == ["Relu.base", "Relu.large"]
    assert shapes(base) == [([8, 8], "float32")]
    assert names(path, "--kernel", "hub/relu@$RELU", "--benchmark", "large") == ["Relu.large"]
    with started(path, "--kernel", "hub/relu@v1") as worker:
        right = prepared(worker, base)
        assert right["outputs"] == base["outputs"]
        assert right["errors"]["out"]["relative_l2"] == 0
        wrong = prepared(worker, large)
    assert wrong["type"] == "failed"
    words = "bench.py:12: wrong result: out differs from the result of verify_large"
    assert wrong["reason"].startswith(words)


REGISTRY = """
    import dataclasses
    import numpy as np
    import torch

    class Tensor(np.ndarray):
        requires_grad = True
        def backward(self, gradient):
            Tensor.input.grad = gradient * 2

    def op(x, scale):
        Tensor.input = x
        return (x * scale).view(Tensor), None

    torch.bfloat16, torch.randn_like = np.float16, np.ones_like

    @dataclasses.dataclass
    class OpConfig:
        name: str
        import_path: str
        func_name: str = None
        extra_kwargs: dict = dataclasses.field(default_factory=dict)
        output_is_tuple: bool = True
        skip_backward: bool = False
        dim_constraints: dict = None
        default_shapes: dict = None

    SHAPE_CONFIGS = {"a": {"B": 1, "D": 64}, "b": {"B": 2, "D": 128}}
    _REGISTRY = {
        each.name: each
        for each in [
            OpConfig("twice", "bench", "op", {"scale": 2}, dim_constraints={"D": [64]}),
            OpConfig("absent", "flash_attn"),
            OpConfig("forward", "bench", "op", {"scale": 1}, skip_backward=True,
                     default_shapes={"c": {"B": 1, "D": 8, "L": 4}}),
        ]
    }

    def generate_inputs(config, B, D, L=1, dtype=None, device=None):
        assert (dtype, device) == (np.float16, "cpu")
        return {"x": np.random.random((B, D * L)).astype(dtype).view(Tensor)}
"""


def test_the_registry_of_flash_linear_attention_has_gradients(tmp_path: Path) -> None:
    path = write(tmp_path, REGISTRY)
    (tmp_path / "torch" / "__init__.py").write_text(textwrap.dedent(TORCH))
    (tmp_path / "fla").mkdir()
    (tmp_path / "fla" / "__init__.py").write_text("")
    (tmp_path / "fla" / "utils.py").write_text("device_name = 'cpu'")
    found = by_name(listed(path, "--benchmark", "twice|forward|absent"))
    assert found == {
        "forward.fwd B=1,D=8,L=4": [([1, 32], "float16")],
        "twice.fwd B=1,D=64": [([1, 64], "float16")],
        "twice.fwdbwd B=1,D=64": [([1, 64], "float16")] * 2,
    }


def test_lines_of_a_testlist_name_its_cases(tmp_path: Path) -> None:
    script = """
        import shlex, sys
        from flashinfer.testing import bench_gpu_time

        def test_norm(args):
            for cur_backend in ("fa2", "fa3"):
                bench_gpu_time(sorted, input_args=([2, 1],))

        for line in open(sys.argv[1]).readlines():
            line = line.strip()
            test_norm(shlex.split(line))
    """
    lines = tmp_path / "testlist.txt"
    lines.write_text(
        "--routine norm --backends fa2 fa3 --m 16 --causal -vv --case_tag 'Llama 8B'\n"
        "--routine norm --m 32 --shape 2 4 --refcheck\n".replace("\\\n", "\n")
    )
    assert names(write(tmp_path, script), str(lines)) == [
        f"test_norm.sorted:{line}"
        for line in (
            "case_tag=Llama-8B,causal=yes,cur_backend=fa2,m=16",
            "case_tag=Llama-8B,causal=yes,cur_backend=fa3,m=16",
            "cur_backend=fa2,m=32,shape=2x4",
            "cur_backend=fa3,m=32,shape=2x4",
        )
    ]


CASES = """
    def cases():
        for rows in (4, 8):
            values = list(range(rows))
            yield "total", {"rows": rows, "dtype": "int"}, lambda: sum(values)
        yield "alone", lambda: raises()

    def raises():
        raise ValueError("one case")
"""


def test_cases_are_made_one_by_one_and_one_that_raises_fails_alone(tmp_path: Path) -> None:
    path = write(tmp_path, CASES)
    cases = listed(path)
    assert named(cases) == ["total:dtype=int,rows=4", "total:dtype=int,rows=8", "alone"]
    assert cases[1]["place"] == "bench.py:5"
    assert names(path, "--benchmark", "rows=8", "own") == ["total:dtype=int,rows=8"]
    with started(path) as worker:
        assert prepared(worker, cases[1])["type"] == "prepared"
        broken = prepared(worker, cases[2])
        assert broken["reason"].endswith("the call raised bench.py:9: ValueError: one case")


def test_a_line_and_a_file_that_fail_are_named_once(tmp_path: Path) -> None:
    path = write(tmp_path, "def cases(): yield 'x', {}, lambda: 1 / 0")
    case = listed(path)[0]
    with started(path) as worker:
        reason = prepared(worker, case)["reason"]
    assert reason == "bench.py:1: the call raised ZeroDivisionError: division by zero"
    absent = f"{path}.gone"
    assert refused(absent, request="hello") == f"{absent} cannot be read: No such file or directory"


TESTS = """
    import numpy as np
    import pytest

    @pytest.fixture(params=[4, 8])
    def rows(request):
        return np.random.random(request.param)

    class TestSums:
        @pytest.mark.benchmark(group="sums")
        @pytest.mark.parametrize("dtype", [np.float32, np.float64])
        def test_sum(self, benchmark, rows, dtype):
            x = rows.astype(dtype)

            @benchmark
            def total():
                return np.cumsum(x)

            assert (total == np.cumsum(x)).all()
            assert 0 < benchmark.stats["min"] <= benchmark.stats.stats.max

    @pytest.mark.parametrize("key", [object()], ids=["odd"])
    def test_sort(benchmark, key):
        def setup():
            return (np.random.random(64),), {"key": key}

        def sort(values, key):
            assert (np.diff(values) < 0).any(), "set up before each call"
            values.sort()
            return values

        found = benchmark.pedantic(sort, setup=setup, rounds=3)
        assert (np.diff(found) >= 0).all()

    def test_without_a_benchmark():
        raise SystemExit("not to be run")
"""


def test_tests_that_take_a_benchmark_are_cases_with_their_parameters(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    path = write(tmp_path, TESTS)
    cases = listed(path)
    assert by_name(cases) == {
        f"TestSums.test_sum.total rows={rows},dtype={dtype}": [([rows], dtype)]
        for rows in (4, 8)
        for dtype in ("float32", "float64")
    } | {"test_sort.sort case=odd": [([64], "float64")]}
    assert names(path, "-k", "sort") == ["test_sort.sort:case=odd"]
    assert measured(path, cases[1:])
    assert not [each for each in tmp_path.iterdir() if "cache" in each.name and each.is_dir()]


MARKED = """
    import numpy as np
    import pytest

    @pytest.fixture
    def values():
        return np.random.random(64)

    @pytest.mark.benchmark
    @pytest.mark.parametrize("rows", [4, 8])
    def test_sum(values, rows):
        assert np.outer(values[:rows], values).sum() > 0

    class TestSort:
        @pytest.mark.codspeed_benchmark
        def test_sort(self, values, axis=-1):
            np.sort(values, axis)

    def test_fixture(codspeed_benchmark):
        codspeed_benchmark(np.zeros, 3)

    def test_without_a_benchmark():
        raise SystemExit("not to be run")
"""


def test_a_test_that_is_marked_is_timed_whole(tmp_path: Path) -> None:
    path = write(tmp_path, MARKED)
    cases = listed(path)
    assert named(cases) == [
        "test_sum:rows=4",
        "test_sum:rows=8",
        "TestSort.test_sort",
        "test_fixture.zeros",
    ]
    assert measured(path, cases)


WOVEN = """
    import sys
    import numpy as np

    def total(depth, values):
        return np.cumsum(values) if depth == 0 else total(depth - 1, values)

    def test_weave(benchmark):
        benchmark.weave(sys.modules[__name__], methods="total")
        for depth in (0, 2):
            assert total(depth, np.ones(4))[-1] == 4

    def test_woven(benchmark_weave):
        assert not hasattr(total, "regatta_woven"), "it is as it was"
        benchmark_weave(sys.modules[__name__], methods="total")
        total(1, np.ones(8))
"""

ASPECTS = """
    import types

    def weave(module, aspect, methods):
        original = getattr(module, methods)
        setattr(module, methods, aspect(original))
        getattr(module, methods).regatta_woven = True
        return types.SimpleNamespace(rollback=lambda: setattr(module, methods, original))
"""


def test_calls_of_a_woven_function_are_cases(tmp_path: Path) -> None:
    path = write(tmp_path, WOVEN)
    assert "python -m pip install aspectlib" in refused(path).replace("python3", "python")
    (tmp_path / "aspectlib.py").write_text(textwrap.dedent(ASPECTS))
    assert by_name(listed(path)) == {
        "test_weave.total depth=0": [([4], "float64")],
        "test_weave.total depth=2": [([4], "float64")],
        "test_woven.total ": [([8], "float64")],
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("-k other", "bench.py: no test that takes `benchmark` was chosen"),
        ("--no-such-option", "error: unrecognized arguments: --no-such-option"),
    ],
)
def test_arguments_of_pytest_that_choose_no_test_are_named(
    tmp_path: Path, arguments: str, words: str
) -> None:
    script = "def test_x(benchmark): benchmark(len, ())"
    assert words in refused(write(tmp_path, script), *arguments.split())


def test_a_conftest_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import nowhere_to_be")
    reason = refused(write(tmp_path, "def test_x(benchmark): benchmark(len, ())"))
    words = "pytest cannot run bench.py: E ModuleNotFoundError: No module named 'nowhere_to_be'"
    assert reason == words


UNREADABLE = {
    "def cases():\n    return []": "bench.py:1: cases() yields nothing: yield a name",
    "def cases():\n    for n in 1, 2:\n        yield 'f', {'n': 3}, len": (
        "bench.py:3: cases() yields f:n=3 twice: give each values of its own"
    ),
    "def cases():\n    yield 3": "bench.py:2: cases() yields 3: yield a name, a dict",
    "def cases(n): yield n": "bench.py:1: cases() raised bench.py:1: TypeError",
    "def cases():\n    yield 'f', len\n    1 / 0": (
        "bench.py:1: cases() raised bench.py:3: ZeroDivisionError: division by zero: it "
        "takes no arguments, and had yielded 1"
    ),
    "def cases():\n    yield 'f', {'x': object}, {}": "bench.py:2: cases() yields ('f'",
    "def cases():\n    yield 'f', {'x': 1.23456789}, len": (
        "bench.py:2: f: `x` = 1.23456789 names no case: a value is a number"
    ),
    "class A:\n    def setup(self):\n        self.x = 1 / 0\n    def time_x(self): pass": (
        "bench.py:4: setup of A.time_x raised bench.py:3: ZeroDivisionError: division by zero: "
        "raise NotImplementedError where it cannot run, or choose by `-- --benchmark PATTERN`"
    ),
    "class A:\n    params = 3\n    def time_x(self, n): pass": (
        "bench.py:3: A.time_x: params 3, param_names []: `params` is a list"
    ),
    "class A:\n    params = [[1], 2]\n    def time_x(self, n, m): pass": (
        "bench.py:3: A.time_x: params [[1], 2], param_names ['param1', 'param2']: `params`"
    ),
    "def time_x(n): pass\ntime_x.params = [[1], [2]]\ntime_x.param_names = ['n', 'n']": (
        "bench.py:1: time_x: params [[1], [2]], param_names ['n', 'n']: `params`"
    ),
    "class A:\n    def __init__(self, n): pass\n    def time_x(self): pass": (
        "bench.py:1: A.time_x() raised bench.py:1: TypeError"
    ),
    "class A:\n    def track_x(self): pass\n    def peakmem_x(self): pass": (
        "there is nothing to time: A.peakmem_x, A.track_x measure for themselves"
    ),
    "def time_it(call): pass\ndef mem_used(): pass": "bench.py ended and called no timer",
    "def setup(): raise NotImplementedError('no')\ndef time_x(): pass": (
        "bench.py ended: each of its benchmarks raises NotImplementedError"
    ),
    "def test_x(benchmark):\n    assert benchmark(lambda: 3) == 4": (
        "bench.py::test_x failed: assert 3 == 4"
    ),
    "import nothing_like_it\ndef test_x(benchmark): pass": (
        "ModuleNotFoundError: No module named 'nothing_like_it'. Is it installed for"
    ),
    "def test_x(benchmark): pass": "bench.py: no test called `benchmark`",
}


@pytest.mark.parametrize("script", UNREADABLE)
def test_a_benchmark_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, script: str
) -> None:
    assert UNREADABLE[script] in " ".join(refused(write(tmp_path, script)).split())


def test_no_benchmark_of_a_pattern_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, ASV)
    for pattern, words in (
        (
            ("--benchmark", "nowhere"),
            "no benchmark of bench.py matches nowhere; it has Sums.time_out, Sums.time_sum, Sort",
        ),
        (("--benchmark", "("), "`(` is not a pattern of benchmark"),
        (("Sums",), "`Sums`: choose benchmarks by `-- --benchmark PATTERN`"),
        (("--benchmark",), "argument --benchmark: expected one argument"),
    ):
        assert words in refused(path, *pattern, request="hello")
    reason = refused(write(tmp_path, CASES), "--benchmark", "nowhere")
    assert "no benchmark of bench.py matches nowhere; it has total, alone" in reason


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", "Relu has no method benchmark_NAME"),
        (
            "def benchmark_base(self): self.x + 1",
            "benchmark_base raised bench.py:4: AttributeError: 'Relu' object has no attribute "
            "'x': Relu has no setup and no setup_base",
        ),
        (
            "def setup(self): 1 / 0\n    benchmark_base = setup",
            "Relu.setup raised bench.py:4: ZeroDivisionError",
        ),
    ],
)
def test_a_class_that_cannot_be_set_up_is_named(tmp_path: Path, script: str, words: str) -> None:
    head = "import torch\nfrom kernels.benchmark import Benchmark\nclass Relu(Benchmark):\n    "
    path = hugging_face(tmp_path, head + (script or "pass"))
    assert words in refused(path, "--kernel", "hub/relu@v1")


def test_a_kernel_that_is_not_built_is_named(tmp_path: Path) -> None:
    reason = refused(hugging_face(tmp_path, RELU), request="hello")
    assert f"FileNotFoundError: no build in {tmp_path.name}. Build it, or name another:" in reason
