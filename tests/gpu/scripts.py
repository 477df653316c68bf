#!/usr/bin/env python3
"""Gates benchmark scripts of public projects as they are, on a GPU: unchanged, and 5 % slower.

    tests/gpu/scripts.py fetch FOLDER                      clones the Python files of the projects
    tests/gpu/scripts.py list REGATTA FOLDER OUT [NAME...]  prints the cases of each script
    tests/gpu/scripts.py gate REGATTA FOLDER OUT [NAME...]  gates each with itself, then slowed
    tests/gpu/scripts.py slowed REGATTA FOLDER OUT [NAME...]  gates each slowed alone

Each project is committed beside a suite of two lines, and the head is its working tree. In the
slowed one, each function that the script times is followed by a kernel that spins for 5 % of its
device time (planted.py), where that is at least 40 µs. Writes a line a gate to OUT/rows.jsonl, and
exits 1 where an unchanged row is worse. A gate takes SCRIPTS_GATE_S seconds at the most (100), and
none begins after SCRIPTS_LIMIT_S. With SCRIPTS_CASES=4 only four cases of each are gated, of the
later half, whose calls are long as a rule. docs/EVIDENCE.md has what an H200 gave.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
IDENTITY = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "gc.auto=0"]

PROJECTS = {
    "gpu-mode/lectures@7cb40f67ad": {
        "lecture_001": "triton_square",
        "lecture_018/kernels": "triton_fused_add_mul_relu triton_fused_add_mul_activation",
    },
    "XunhaoLai/native-sparse-attention-triton@9bea856c91": {
        "test": "test_linear_compress test_compress_key_value test_compressed_attention "
        "test_topk_sparse_attention test_flash_attention",
    },
    "fla-org/flash-linear-attention@bc3b101dcb": {
        "benchmarks/modules": "benchmark_activations benchmark_conv benchmark_cross_entropy "
        "benchmark_l2norm benchmark_layernorm benchmark_tokenshift",
    },
    "linkedin/Liger-Kernel@ead96b618e": {
        "benchmark/scripts": "benchmark_dyt benchmark_geglu benchmark_group_norm benchmark_jsd "
        "benchmark_kl_div benchmark_layer_norm benchmark_poly_norm benchmark_relu_squared "
        "benchmark_rms_norm benchmark_rope benchmark_softmax benchmark_sparsemax benchmark_swiglu "
        "benchmark_tvd",
    },
    "meta-pytorch/attention-gym@7fdb85d0b9": {
        "benchmarks/sparse": "selected_attention_benchmark",
        "examples": "benchmark",
    },
    "alexzhang13/flashattention2-custom-mask@8170916288": {"": "test_benchmark"},
    "FlagOpen/FlagAttention@ee91638dec": {
        "benchmark": "flash_benchmark flash_decoding_benchmark piecewise_benchmark paged_benchmark",
    },
    "pytorch-labs/applied-ai@4f8c39eb70": {"dev/triton_groupGEMM": "triton_tutorial_groupgemm"},
}
"""The repositories on GitHub with the commit of each that was tried, and by folder its scripts."""

ARGUMENTS = {"benchmark/scripts": ("--overwrite",), "benchmarks/sparse": ("--no-calculate-bwd",)}
"""By folder, for each of its scripts."""

LIMIT_S = int(os.environ.get("SCRIPTS_GATE_S", "100"))
"""A gate starts no pair that would end later."""

CASES = int(os.environ.get("SCRIPTS_CASES", "0"))
"""Cases of each script that are gated; 0 for all."""


@dataclass(frozen=True)
class Script:
    """A benchmark script of a project."""

    project: str
    path: str
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        stem = Path(self.path).stem.removeprefix("benchmark_").removeprefix("test_")
        return "examples" if self.path.startswith("examples/") else stem


SCRIPTS = [
    Script(project.partition("@")[0], f"{folder}/{name}.py".lstrip("/"), ARGUMENTS.get(folder, ()))
    for project, folders in PROJECTS.items()
    for folder, names in folders.items()
    for name in names.split()
]

TIMERS = {"do_bench", "do_bench_cudagraph", "do_bench_using_profiling"}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True)


def fetch(folder: Path) -> None:
    """The Python files of the projects, each in a folder of its name."""
    for project, commit in (each.split("@") for each in PROJECTS):
        into = folder / project.replace("/", "+")
        if into.exists():
            continue
        into.mkdir(parents=True)
        git(into, "clone", "--filter=blob:none", "-n", f"https://github.com/{project}", ".git-full")
        full = into / ".git-full"
        git(full, "checkout", commit, "--", "*.py")
        for file in full.rglob("*.py"):
            target = into / file.relative_to(full)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        shutil.rmtree(full)


def checkout(folder: Path, out: Path, script: Script) -> Path:
    """The project and a suite of the script, committed."""
    work = out / "work" / script.name
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder / script.project.replace("/", "+"), work)
    words = ", ".join(json.dumps(word) for word in (f"script:{script.path}", *script.arguments))
    (work / "suite.toml").write_text(
        f"workers.{script.name} = [{words}]\npolicy.threshold = 0.02\n"
    )
    shutil.copy(HERE / "planted.py", work)
    (work / "data").mkdir(exist_ok=True)
    (work / ".gitignore").write_text("reports\n__pycache__\ndata\n*.csv\n*.png\n*.html\n")
    for step in (["init", "-q", "-b", "main"], ["add", "-f", "."], ["commit", "-qm", script.name]):
        git(work, *step)
    return work


def plant(work: Path, script: Script) -> None:
    """Has a kernel that spins follow each function that the script, or a file beside it, times.
    Nothing else moves: lines stay where they are."""
    for path in sorted((work / script.path).parent.glob("*.py")):
        text = path.read_text()
        lines = text.encode().splitlines(keepends=True)
        starts = [sum(map(len, lines[:row])) for row in range(len(lines) + 1)]
        edits: list[tuple[int, bytes]] = []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                first: Any = node.args[0]
                if called in TIMERS:
                    before = b"__import__('planted').slowed("
                    edits.append((starts[first.lineno - 1] + first.col_offset, before))
                    edits.append((starts[first.end_lineno - 1] + first.end_col_offset, b")"))
        source = text.encode()
        for place, inserted in sorted(edits, reverse=True):
            source = source[:place] + inserted + source[place:]
        path.write_bytes(source)


def ran(
    command: list[str], work: Path, limit_s: float | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A command in a checkout, and its exit code and seconds; the package of some lies in src/."""
    began, variables = time.monotonic(), dict(os.environ)
    if (work / "src").is_dir():
        paths = [str(work / "src"), os.environ.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = ":".join(filter(None, paths))
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": limit_s}
    done = subprocess.run(command, cwd=work, env=variables, check=False, **options)
    return done, {"exit": done.returncode, "s": round(time.monotonic() - began, 1)}


def answer(regatta: str, work: Path, command: list[str]) -> dict[str, Any]:
    """A gate's exit code, seconds and the words of its rows."""
    done, row = ran([regatta, *command], work)
    try:
        rows = json.loads(done.stdout).get("rows", [])
    except json.JSONDecodeError:
        rows = []
    if not rows:
        row["error"] = (done.stderr or done.stdout)[-1500:]
    words = {each["case"]: each["word"] for each in rows}
    row["words"] = dict(Counter(words.values()))
    row["worse"] = [case for case, word in words.items() if word == "regressed"][:20]
    row["missing"] = [case for case, word in words.items() if word == "missing"][:3]
    (work / "reports").mkdir(exist_ok=True)
    (work / "reports" / f"answer-{len(command)}-{time.time_ns()}.json").write_text(done.stdout)
    return row


def planted(work: Path) -> tuple[int, int]:
    """The calls that were slowed, and all calls; none where the gate made none."""
    log = work / "reports" / "planted.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    cycles = [json.loads(line)["cycles"] for line in lines]
    return sum(each > 0 for each in cycles), len(cycles)


def some_cases(regatta: str, folder: Path, out: Path, script: Script) -> list[str]:
    """Filters for CASES of the script's cases, spread over the later half of its calls."""
    if not CASES:
        return []
    done, _ = ran([regatta, "list", "./suite.toml", "--ids"], checkout(folder, out, script))
    ids = done.stdout.split()
    later = ids[len(ids) // 2 :]
    step = max(1, len(later) // CASES)
    return [word for case in later[::step][:CASES] for word in ("--filter", case)]


def gate(
    regatta: str, folder: Path, out: Path, script: Script, filters: list[str], both: bool
) -> list[dict[str, Any]]:
    """A gate of the script with itself if both are wanted, and one with its functions slowed."""
    work = checkout(folder, out, script)
    command = ["gate", "./suite.toml", "--base", "git:main", "--json", "--quiet", "--no-resume"]
    command += ["--time-limit", f"{LIMIT_S}s", *filters]
    about = {"project": script.project, "script": script.path}
    rows = []
    if both:
        rows.append(about | {"what": "unchanged"} | answer(regatta, work, command))
        if not rows[0]["words"]:
            return rows
    plant(work, script)
    slower = about | {"what": "+5 %"} | answer(regatta, work, command)
    slower["planted"], slower["calls"] = planted(work)
    return [*rows, slower]


def listed(regatta: str, folder: Path, out: Path, script: Script) -> dict[str, Any]:
    try:
        done, row = ran([regatta, "list", "./suite.toml"], checkout(folder, out, script), 280)
    except subprocess.TimeoutExpired:
        return {"script": script.path, "error": "not listed within 280 s"}
    row = {"script": script.path, **row}
    cases = [line for line in done.stdout.splitlines() if f"{script.name}/" in line]
    row |= {"cases": len(cases), "first": done.stdout[:400], "error": done.stderr[-700:]}
    return row


def main() -> int:
    what, *words = sys.argv[1:]
    if what == "fetch":
        fetch(Path(words[0]).resolve())
        return 0
    regatta, folder, out = (str(Path(words[0]).resolve()), Path(words[1]).resolve(), Path(words[2]))
    out = out.resolve()
    (out / "work").mkdir(parents=True, exist_ok=True)
    named = {script.name: script for script in SCRIPTS}
    chosen = [named[name] for name in words[3:] or named]
    worse = 0
    with (out / "rows.jsonl").open("a") as rows:

        def write(row: dict[str, Any]) -> None:
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            print(json.dumps(row)[:600], flush=True)

        if what == "list":
            with ThreadPoolExecutor(6) as pool:
                for row in pool.map(lambda each: listed(regatta, folder, out, each), chosen):
                    write(row)
            return 0
        deadline = time.monotonic() + float(os.environ.get("SCRIPTS_LIMIT_S", "1e9"))
        with ThreadPoolExecutor(6) as pool:
            some = list(pool.map(lambda each: some_cases(regatta, folder, out, each), chosen))
        for script, filters in zip(chosen, some, strict=True):
            if time.monotonic() > deadline:
                write({"script": script.path, "error": "not begun: no time was left"})
                continue
            for row in gate(regatta, folder, out, script, filters, what == "gate"):
                worse += row["what"] == "unchanged" and bool(row["worse"])
                write(row)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
