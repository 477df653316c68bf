#!/usr/bin/env python3
"""Both rates of docs/CHEATS.md: ways that gain, and honest functions that are refused.

    tests/cheats/table.py REGATTA OUT [NAME...] [--cpu | --gpu] [--timers] [--invocations N]

Runs each way and each honest function that this Python has the framework for by REGATTA, and writes
OUT/rows.json, OUT/table.md and OUT/log.txt, which has a line a function. A way gains where its
samples lie below the honest function's by more than 1.15 times. Exits 1 where one gains that is not
in OPEN, one of OPEN does not, or an honest function is refused. With `--timers`, which needs torch,
the ways of plain Python alone are tried, and timed by `triton.testing.do_bench` and by events too.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GAIN = 1.15
"""A way gains that looks faster than the honest function by more than this."""

OPEN: dict[str, str] = {}
"""Ways that gain, and why they are not refused."""

TIMERS = ("do_bench", "events")
"""Those of `timers.py`, which needs torch."""

LIMIT_S = {"cpu": 1200, "gpu": 440}
"""No run is started after this long."""
AT_ONCE = {"cpu": 64, "gpu": 12}
"""Functions of a run."""

ALONE = {"run_file_edited"}
"""Ways that change more than their own case, and have a run of their own."""

PLAIN = HERE.parents[1] / "python/tests/cheats.py"
SUITE = """description = "ways and honest functions"
[environments.default.env]
OPENBLAS_NUM_THREADS = "1"
# Page faults are half of a short call's time, and more where the heap has no room at its end: a way
# that only leaves it larger would look faster.
MALLOC_TRIM_THRESHOLD_ = "1073741824"
MALLOC_MMAP_THRESHOLD_ = "33554432"
REGATTA_NATIVE_WAYS = "{library}"
[measure]
invocations = {invocations}
samples = 20
budget_ms = 100
timeout_s = 30
[workers]
{workers}
[[sweep]]
variants = [{variants}]
shapes = [{{ batch = {batch}, heads = {heads}, seq = {seq}, head_dim = {width} }}]
dtype = "f32"
layout = "bhsd"
"""
SHAPES = {"cpu": (1, 4, 160, 32), "gpu": (2, 16, 2048, 64)}
"""Batch, heads, seq and head_dim."""

Row = dict[str, Any]


class Module:
    """A file of functions, read without being imported: its framework need not be here."""

    def __init__(self, path: Path, needs: str, honest: bool) -> None:
        self.path, self.needs, self.honest = path, needs, honest
        parsed = ast.parse(path.read_text())
        nodes = [node for top in parsed.body for node in (top, *getattr(top, "body", ()))]
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        self.does = {
            node.name: (ast.get_docstring(node) or "").partition("\n")[0]
            for node in functions
            if [argument.arg for argument in node.args.args[:3]] == ["q", "k", "v"]
            and not node.name.startswith("_")
        }
        self.on_gpu = {
            node.name
            for node in functions
            if "_needs('cuda')" in map(ast.unparse, node.decorator_list)
        }
        """Those that a GPU alone can try."""
        for node in parsed.body:
            if isinstance(node, ast.ImportFrom) and node.module == "native_ways":
                ways = Module(HERE / "native_ways.py", "numpy", False).does
                self.does |= {one.name: ways[one.name] for one in node.names if one.name in ways}

    @property
    def is_here(self) -> bool:
        """True if this Python has its framework."""
        return importlib.util.find_spec(self.needs) is not None


Function = tuple[Module, str]


def modules(device: str, timers: bool) -> list[Module]:
    """The functions for a device whose framework this Python has."""
    if timers:
        return [Module(PLAIN, "torch", False)]
    files = {
        "cpu": [
            (HERE / "native_ways.py", "numpy", False),
            (HERE / "honest_numpy.py", "numpy", True),
            (HERE / "honest_jax.py", "jax", True),
            (HERE / "honest_torch.py", "torch", True),
        ],
        "gpu": [
            (PLAIN, "torch", False),
            (HERE / "native_ways_gpu.py", "torch", False),
            (HERE / "honest_torch.py", "torch", True),
            (HERE / "honest_jax.py", "jax", True),
        ],
    }
    found = [Module(*file) for file in files[device]]
    return [module for module in found if module.is_here]


def worker(module: Module, name: str) -> str:
    """The name of a function's worker: those of two modules may have one name."""
    return f"{module.path.stem.replace('_', '-')}-{name.replace('_', '-')}"


def measured(
    regatta: str, out: Path, device: str, some: list[Function], invocations: int
) -> dict[str, list[Row]]:
    """The outcomes of each worker in a run of these functions, one an invocation."""
    folder, suite = out / "run", out / "ways.toml"
    shutil.rmtree(folder, ignore_errors=True)
    workers = (f'{worker(module, name)} = "{module.path}:{name}"' for module, name in some)
    suite.write_text(
        SUITE.format(
            library=out / "native.so",
            invocations=invocations,
            **dict(zip(("batch", "heads", "seq", "width"), SHAPES[device], strict=True)),
            workers="\n".join(workers),
            variants=", ".join(f'"{worker(module, name)}/{name}"' for module, name in some),
        )
    )
    environment = {**os.environ, "REGATTA_PYTHON": sys.executable}
    command = [regatta, "run", str(suite), "--out", str(folder), "--no-resume", "--quiet"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    with (out / "regatta.log").open("a") as log:
        log.write(ran.stdout + ran.stderr)
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    if lines[-1]["kind"] != "end":
        # Nothing is judged, and no baseline is made of it.
        words = {"failed": {"reason": ran.stderr.removeprefix("error: ")}}
        return {worker(module, name): [words] for module, name in some}
    outcomes: dict[str, list[Row]] = {}
    for entry in lines:
        if entry["kind"] == "entry":
            outcomes.setdefault(entry["case"].partition("/")[0], []).append(entry["outcome"])
    return outcomes


def row(module: Module, name: str, outcomes: list[Row]) -> Row:
    """A function's time where all of its invocations were measured, or the first reason."""
    reasons = [str(each["reason"]) for of in outcomes for each in of.values() if "reason" in each]
    times = [
        statistics.median(of["measured"]["samples"]["device_ns"])
        for of in outcomes
        if "measured" in of
    ]
    found: Row = {"module": module.path.stem, "name": name, "does": module.does[name]}
    found |= {"honest": module.honest or name == "honest"}
    if not outcomes:
        return found | {"refused": "no run measured it"}
    return found | ({"refused": reasons[0]} if reasons else {"ns": statistics.median(times)})


def gain(found: Row, rows: list[Row]) -> float | None:
    """By how many times a way looks faster than the honest function of its module."""
    honest = next(
        (x.get("ns") for x in rows if x["module"] == found["module"] and x["name"] == "honest"),
        None,
    )
    return honest / found["ns"] if "ns" in found and honest else None


def by_timer(found: Row, rows: list[Row], timer: str) -> str:
    """A time by another timer, and in parts of the honest function's."""
    honest = next((x.get(timer) for x in rows if x["name"] == "honest"), None)
    us = found.get(timer, "not tried")
    if not isinstance(us, float) or not isinstance(honest, float):
        return str(us)
    return f"{us:.1f} µs ({us / honest:.2f})"


def outcome(found: Row, rows: list[Row]) -> str:
    """The result of a function, in words."""
    if "refused" in found:
        return "refused: " + " ".join(found["refused"].split())[:200]
    times, us = gain(found, rows), f"{found['ns'] / 1e3:.1f} µs"
    if found["honest"] or times is None:
        return us
    return f"{us}, {times:.2f} times the honest speed" + (": **gained**" if times > GAIN else "")


def gained(rows: list[Row]) -> list[str]:
    return [
        x["name"] for x in rows if not x["honest"] and (times := gain(x, rows)) and times > GAIN
    ]


def device_name(device: str) -> str:
    if device == "cpu":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return f"{next(models, 'a processor')}, {os.cpu_count()} cores"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[0]


def page(rows: list[Row], device: str) -> str:
    """The table, with both rates above it."""
    ways = [x for x in rows if not x["honest"]]
    honest = [x for x in rows if x["honest"]]
    refused = [x for x in honest if "refused" in x]
    timers = [timer for timer in TIMERS if any(timer in x for x in rows)]

    def line(name: str, row: Row) -> str:
        cells = [outcome(row, rows), *(by_timer(row, rows, timer) for timer in timers)]
        escaped = [cell.replace("|", "\\|") for cell in cells]
        return " | ".join([f"| `{name}` {row['does']}", *escaped]) + " |"

    def head(*titles: str) -> list[str]:
        columns = [*titles, *timers]
        return ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]

    lines = [
        f"On {device_name(device)}: **{len(gained(rows))} of {len(ways)}** ways gain more than "
        f"{GAIN} times, and **{len(refused)} of {len(honest)}** honest functions are refused.",
        *head("way", "what regatta says"),
        *(line(x["name"], x) for x in ways),
        *head("honest function", "time"),
        *(line(f"{x['module']}.{x['name']}", x) for x in honest),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Runs all, those that gained or were refused among the honest once more by themselves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("regatta")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="functions to try; all by default")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--cpu", dest="device", action="store_const", const="cpu", default="cpu")
    where.add_argument("--gpu", dest="device", action="store_const", const="gpu")
    parser.add_argument("--timers", action="store_true", help="plain ways, by other timers too")
    parser.add_argument("--invocations", type=int, default=2)
    asked = parser.parse_intermixed_args()
    begin, device = time.monotonic(), asked.device
    regatta, out = os.path.abspath(asked.regatta), asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "regatta.log").write_text("")
    compiler = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", out / "native.so"]
    subprocess.run([*compiler, HERE / "native.c", "-ldl", "-lpthread"], check=True)
    every = [
        (module, name)
        for module in modules(device, asked.timers)
        for name in module.does
        if not asked.names or name in asked.names or name == "honest"
        if device == "gpu" or name not in module.on_gpu
    ]
    if not every:
        parser.error("nothing to try: this Python has no NumPy")
    known = {name for _, name in every}
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"no function `{unknown[0]}` that this Python has the framework for")
    rows: list[Row] = []
    log = (out / "log.txt").open("w")

    def tell(words: str) -> None:
        line = f"{time.monotonic() - begin:4.0f} s  {words}"
        print(line, flush=True)
        print(line, file=log, flush=True)

    def write() -> None:
        (out / "rows.json").write_text(json.dumps(rows, indent=1))
        (out / "table.md").write_text(page(rows, device))

    def run(some: list[Function]) -> None:
        outcomes = measured(regatta, out, device, some, asked.invocations)
        for module, name in some:
            again = row(module, name, outcomes.get(worker(module, name), []))
            keys = ("module", "name")
            rows[:] = [x for x in rows if any(x[key] != again[key] for key in keys)] + [again]
        write()
        for found in rows[-len(some) :]:
            tell(f"{found['module']}.{found['name']}: {outcome(found, rows)}")

    together = [each for each in every if each[1] not in ALONE]
    size = AT_ONCE[device]
    parts = [together[at : at + size] for at in range(0, len(together), size)]
    for some in parts + [[each] for each in every if each[1] in ALONE]:
        if time.monotonic() - begin < LIMIT_S[device]:
            run(some)
    # Other programs may have made a gain by slowing one of them.
    doubtful = [
        (module, name) for module, name in every if name in gained(rows) and name not in OPEN
    ]
    honest = [
        each for each in every if each[0].path.name == "native_ways.py" and each[1] == "honest"
    ]
    if doubtful and time.monotonic() - begin < LIMIT_S[device]:
        run(doubtful + [each for each in honest if each not in doubtful])
    for x in rows if asked.timers else ():
        if time.monotonic() - begin < LIMIT_S[device]:
            from timers import times

            x |= times(x["name"], SHAPES[device], "cuda" if device == "gpu" else "cpu")
            write()
            cells = ", ".join(by_timer(x, rows, timer) for timer in TIMERS)
            tell(f"{x['name']} by {' and '.join(TIMERS)}: {cells}")
    refused = [x["name"] for x in rows if x["honest"] and "refused" in x]
    now = gained(rows)
    tell(f"gained: {', '.join(now) or 'none'}; honest and refused: {', '.join(refused) or 'none'}")
    closed = [name for name in OPEN if name in known and name not in now]
    if closed:
        tell(f"no longer open: {', '.join(closed)}")
    return int(bool(refused or closed or set(now) - set(OPEN)))


if __name__ == "__main__":
    sys.exit(main())
