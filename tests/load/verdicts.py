#!/usr/bin/env python3
"""The answers of a gate for a NumPy function beside busy loops, and their times.

    tests/load/verdicts.py REGATTA [COUNT] [ROW...]

Each row is measured COUNT times (10): the function of docs/FUNCTIONS.md as it is, with its 10 %
slip, and made faster by a thread, by 14 times and by 2.4 times; and the script of docs/SCRIPTS.md
with twelve cases, unchanged. `python3` needs NumPy. ROW takes the rows whose name begins with it.
docs/EVIDENCE.md has what two cores gave.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "FUNCTIONS.md").read_text()
SCRIPTS = (ROOT / "docs" / "SCRIPTS.md").read_text()
IDENTITY = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]

FASTER = """
from concurrent.futures import ThreadPoolExecutor

import numpy as np

POOL = ThreadPoolExecutor(2)


def _rows(q, k, v, problem, heads):
    scores = np.einsum("bihd,bjhd->bhij", q[:, :, heads], k[:, :, heads], optimize=True)
    weights = np.exp(scores * np.float32(problem.scale))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", weights, v[:, :, heads], optimize=True)


def _parts(q, k, v, problem, work):
    half = problem.heads // 2
    parts = [slice(0, half), slice(half, None)]
    return np.concatenate(list(work(lambda part: _rows(q, k, v, problem, part), parts)), axis=2)


def one_thread(q, k, v, problem):
    return _parts(q, k, v, problem, map)


def two_threads(q, k, v, problem):
    return _parts(q, k, v, problem, POOL.map)


def by_broadcast(q, k, v, problem):
    out = np.empty_like(q)
    for head in range(problem.heads):
        one = slice(head, head + 1)
        scores = (q[:, :, None, head] * k[:, None, :, head]).sum(axis=-1)[:, None]
        weights = np.exp(scores * np.float32(problem.scale))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[:, :, one] = np.einsum("bhij,bjhd->bihd", weights, v[:, :, one])
    return out


def by_products(q, k, v, problem):
    return _rows(q, k, v, problem, slice(None))


def by_two_products(q, k, v, problem):
    _rows(q, k, v, problem, slice(None, 2))
    return by_products(_rows(q, k, v, problem, slice(None)) * 0 + q, k, v, problem)
"""

SUITE = """
workers.mine = "faster.py"
environments.default.env = { OPENBLAS_NUM_THREADS = "1" }
[[sweep]]
variants = [
  "mine/one_thread", "mine/two_threads",
  "mine/by_broadcast", "mine/by_products", "mine/by_two_products",
]
heads = 4
seq = 768
head_dim = 64
"""


class Row:
    """A gate or comparison beside so many busy loops, and the exit code that is right."""

    def __init__(self, name: str, loops: int, right: int, arguments: list[str]) -> None:
        self.name, self.loops, self.right, self.arguments = name, loops, right, arguments


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TUTORIAL, re.S)


def checkout(folder: pathlib.Path) -> None:
    """The tutorial's folder, committed."""
    (folder / "attention.py").write_text(blocks("python")[0])
    (folder / "speed.toml").write_text(blocks("toml")[0])
    (folder / "faster.py").write_text(FASTER)
    (folder / "faster.toml").write_text(SUITE)
    norms, benchmark = re.findall(r"```python\n(.*?)```", SCRIPTS, re.S)[:2]
    (folder / "norms.py").write_text(norms)
    (folder / "bench_norms.py").write_text(benchmark)
    (folder / ".gitignore").write_text("reports\n__pycache__\n")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "base"]):
        subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True)


def slip(folder: pathlib.Path) -> None:
    """The line of the tutorial that costs 10 %."""
    line = next(line for line in TUTORIAL.splitlines() if line.startswith("sed -i"))
    subprocess.run(["sh", "-c", line], cwd=folder, check=True)


def measured(row: Row, regatta: str, folder: pathlib.Path) -> tuple[int, float, str]:
    """Exit code, seconds, and the words of the cases."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(row.loops)]
    began = time.monotonic()
    try:
        command_name, *rest = row.arguments
        options = ["--json", "--quiet", "--no-resume", "--out", "reports/r"]
        command = [regatta, command_name, *options, *rest]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    seconds = time.monotonic() - began
    try:
        rows = json.loads(done.stdout).get("rows", [])
    except json.JSONDecodeError:
        rows = []
        print(done.stdout, done.stderr, file=sys.stderr)
    return done.returncode, seconds, " ".join(sorted(row["word"] for row in rows))


def main() -> None:
    regatta = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    gate = ["gate", "./speed.toml", "--base", "git:main"]

    def compare(base: str, head: str) -> list[str]:
        return ["compare", "./faster.toml", "--base", f"mine/{base}", "--head", f"mine/{head}"]

    cores = os.cpu_count() or 1
    sizes = [str(2**n) for n in range(4, 10)]
    script = ["compare", "script:bench_norms.py", "--base", "git:main", "--", *sizes]
    rows = [Row(f"unchanged, {n} loops", n, 0, gate) for n in (2 * cores, cores, 0)]
    rows += [Row(f"slip, {n} loops", n, 1, gate) for n in (2 * cores, cores, 0)]
    rows += [
        Row("faster by a thread, 0 loops", 0, 0, compare("one_thread", "two_threads")),
        Row(f"faster by 14, {cores} loops", cores, 0, compare("by_broadcast", "by_products")),
        Row(f"faster by 2.4, {cores} loops", cores, 0, compare("by_two_products", "by_products")),
        Row(f"script, {cores} loops", cores, 0, script),
    ]
    rows = [row for row in rows if len(sys.argv) < 4 or row.name.startswith(tuple(sys.argv[3:]))]
    for row in rows:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            checkout(folder)
            if row.name.startswith("slip"):
                slip(folder)
            answers = [measured(row, regatta, folder) for _ in range(count)]
        codes = Counter(code for code, _, _ in answers)
        words = Counter(words for _, _, words in answers)
        seconds = sorted(seconds for _, seconds, _ in answers)
        print(
            f"| {row.name} | {codes[row.right]} of {count} exit {row.right} | {dict(codes)} | "
            f"{seconds[0]:.0f} to {seconds[-1]:.0f} s | {dict(words)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
