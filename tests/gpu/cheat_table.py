"""The table of tests/gpu/cheats: each cheat in processes of its own, with a time limit."""

import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/tests"))

import torch  # noqa: E402

import cheats  # noqa: E402

GPU = bool(os.path.exists("/dev/nvidiactl"))
"""Not asked of CUDA, which no fork could use any more."""

SHAPE = (2, 16, 2048, 64) if GPU else (1, 8, 256, 32)
LANES = 4 if GPU else 1
"""Cheats that are tried at once; those that are not refused are timed again alone."""
LIMITS_S = (210, 300, 420)
"""After this long none is tried any more, timed again alone, or given to the other timers."""
RUN_LIMIT_S = 90
TIMER_LIMIT_S = 40
GAIN = 0.9
"""A cheat gains where its time is below this part of the honest function's."""

SUITE = """description = "one cheat"
[workers]
cheats = "{file}:{name}"
[measure]
invocations = 5
samples = 20
budget_ms = 100
[[sweep]]
variants = ["cheats/{name}"]
shapes = [{{ batch = {batch}, heads = {heads}, seq = {seq}, head_dim = {width} }}]
dtype = "f32"
layout = "bhsd"
"""

Row = dict[str, Any]


def first_sentence(text: str) -> str:
    """A reason without its advice."""
    return text.partition(". ")[0]


def by_regatta(regatta: str, name: str, out: Path) -> tuple[str, float | None]:
    """The first reason of a run's entries, and else the device time in µs; both are of words."""
    batch, heads, seq, width = SHAPE
    suite, folder = out / f"{name}.toml", out / name
    shutil.rmtree(folder, ignore_errors=True)
    suite.write_text(
        SUITE.format(
            file=cheats.__file__, name=name, batch=batch, heads=heads, seq=seq, width=width
        )
    )
    environment = {**os.environ, "REGATTA_PYTHON": sys.executable}
    command = [regatta, "run", str(suite), "--out", str(folder), "--no-resume", "--quiet"]
    with (out / f"{name}.log").open("w") as log:
        code = subprocess.run(
            command, env=environment, stdout=log, stderr=log, timeout=RUN_LIMIT_S, check=False
        ).returncode
    lines = map(json.loads, (folder / "run.jsonl").read_text().splitlines())
    outcomes = [line["outcome"] for line in lines if line["kind"] == "entry"]
    reasons = [str(of["reason"]) for each in outcomes for of in each.values() if "reason" in of]
    if reasons:
        return f"exit {code}: {first_sentence(reasons[0])}", None
    samples = (each["measured"]["samples"] for each in outcomes if "measured" in each)
    times = [statistics.median(of["device_ns"]) for of in samples]
    if code != 0 or not times:
        return f"exit {code}: see {name}.log", None
    return "exit 0", statistics.median(times) / 1e3


def timers(name: str, pipe: Any) -> None:
    """Sends what do_bench and a loop of events say in µs, or why they say nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    function = vars(cheats)[name]
    device = "cuda" if GPU else "cpu"
    q, k, v = (torch.randn(SHAPE, device=device) for _ in range(3))

    def call() -> Any:
        return function(q, k, v)

    for timer in (do_bench, events):
        try:
            pipe.send(timer(call))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0][:60]}")
    # Threads of the cheat may never end.
    os._exit(0)


def do_bench(call: Callable[[], Any]) -> float:
    """By triton."""
    import triton.testing

    return float(triton.testing.do_bench(call)) * 1e3


def events(call: Callable[[], Any], calls: int = 50) -> float:
    """One pair of events around many calls, as many benchmarks do."""
    for _ in range(3):
        call()
    if not GPU:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        return (time.perf_counter_ns() - begin) / calls / 1e3
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        call()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / calls


def by_timers(name: str) -> list[float | str]:
    """The times of a process that is forked from this one, where CUDA is untouched."""
    forks = multiprocessing.get_context("fork")
    here, there = forks.Pipe(duplex=False)
    process = forks.Process(target=timers, args=(name, there))
    process.start()
    there.close()
    said: list[float | str] = []
    end = time.monotonic() + TIMER_LIMIT_S
    while len(said) < 2:
        try:
            if not here.poll(max(0.0, end - time.monotonic())):
                said.append(f"no answer in {TIMER_LIMIT_S} s")
                break
            said.append(here.recv())
        except EOFError:
            process.join(1)
            said.append(f"the process ended with {process.exitcode}")
            break
    process.kill()
    process.join()
    return (said * 2)[:2]


def tried(regatta: str, name: str, out: Path) -> Row:
    """Regatta's answer, whatever happens."""
    row: Row = {"name": name, "does": (vars(cheats)[name].__doc__ or "").strip()}
    try:
        said, us = by_regatta(regatta, name, out)
    except Exception as error:
        said, us = f"{type(error).__name__}: {error}"[:240], None
    return row | {"said": said, "us": us}


def ratio(row: Row, honest: Row, key: str) -> float | None:
    """A time in parts of the honest function's."""
    own, right = row.get(key), honest.get(key)
    if not isinstance(own, float) or not isinstance(right, float):
        return None
    return own / right


def cell(row: Row, honest: Row, key: str) -> str:
    """A time as it stands in the table."""
    part = ratio(row, honest, key)
    return str(row.get(key, "not tried")) if part is None else f"{row[key]:.1f} µs ({part:.2f})"


def outcome(row: Row, honest: Row) -> str:
    """Regatta's answer to a cheat, in the table."""
    part = ratio(row, honest, "us")
    if row["us"] is None or part is None:
        return str(row["said"])
    word = "**gained**" if part < GAIN else "gained nothing"
    return f"{word}: {row['us']:.1f} µs ({part:.2f})"


def device_name() -> str:
    """Asked of the driver, as no fork could use CUDA if this process had."""
    if not GPU:
        return "a CPU"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout
    return said.strip().partition("\n")[0] or "a GPU"


def page(rows: list[Row], left: list[str]) -> str:
    """docs/CHEATS.md."""
    honest, device = rows[0], device_name()
    refused = sum(row["us"] is None for row in rows[1:])
    gained = [row["name"] for row in rows if (ratio(row, honest, "us") or 1.0) < GAIN]
    batch, heads, seq, width = SHAPE
    lines = [
        "<!-- generated by tests/gpu/cheats -->",
        "# Ways to cheat a benchmark",
        "",
        f"`tests/gpu/cheats` tried {len(rows) - 1} on {device}, torch {torch.__version__}: "
        f"{refused} refused, {len(gained)} gained time, the others gained nothing.",
        f"Attention of float32, batch {batch}, {heads} heads, {seq} rows, {width} wide. Each is a "
        "function of",
        "`python/tests/cheats.py`, right in its first call. In brackets: its time in parts of the "
        "honest function's,",
        "by the same tool.",
        "",
        "| what it does | regatta | `do_bench` | " + ("CUDA events |" if GPU else "host's clock |"),
        "|---|---|---|---|",
    ]
    for row in rows:
        said = outcome(row, honest).replace("|", "\\|").replace("\n", " ")
        cells = [cell(row, honest, key).replace("|", "\\|") for key in ("do_bench", "events")]
        lines.append(f"| `{row['name']}` {row['does']} | {said} | {cells[0]} | {cells[1]} |")
    if left:
        lines += ["", f"Not tried within {LIMITS_S[0]} s: {', '.join(left)}."]
    return "\n".join(lines) + "\n"


def main(regatta: str, out: Path, names: list[str]) -> int:
    """Tries each, and writes the page after each step, so that what was found is not lost."""
    begin = time.monotonic()
    regatta, out = os.path.abspath(regatta), out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    every = cheats.cheats({"torch", "cuda"} if GPU else {"torch"})
    wanted = ["honest", *(name for name in names or every if name != "honest")]

    def spent() -> float:
        return time.monotonic() - begin

    def first(name: str) -> Row | None:
        return None if spent() > LIMITS_S[0] else tried(regatta, name, out)

    def write() -> None:
        (out / "rows.json").write_text(json.dumps(rows, indent=1))
        (out / "CHEATS.md").write_text(page(rows, left))

    with ThreadPoolExecutor(LANES) as lanes:
        found = dict(zip(wanted, lanes.map(first, wanted), strict=True))
    rows = [row for row in found.values() if row]
    left = [name for name, row in found.items() if row is None]
    for row in rows if LANES > 1 else ():
        # 3, and what took too long: the others may have been in the way.
        again = row["us"] is not None or not str(row["said"]).startswith("exit 1")
        if again and spent() < LIMITS_S[1]:
            row |= tried(regatta, row["name"], out)
    write()
    for row in rows:
        row["do_bench"] = row["events"] = "not tried"
        if spent() < LIMITS_S[2]:
            try:
                row["do_bench"], row["events"] = by_timers(row["name"])
            except Exception as error:
                row["do_bench"] = row["events"] = type(error).__name__
        write()
        print(f"{spent():5.0f} s  {row['name']}: {outcome(row, rows[0])}", flush=True)
    return int(any((ratio(row, rows[0], "us") or 1.0) < GAIN for row in rows))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: tests/gpu/cheats REGATTA OUT [NAME...]")
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
