"""Does `regatta diff` of two traces name the cause of a slowdown, and nothing else?

    python3 probe/tests/trace_faults.py --regatta target/release/regatta

Programs on a GPU (attention, Llama in training and in generation, torch.compile, JAX
and CUDA; faults/table.py lists them) are traced as they should be, then once with
each of their faults and harmless changes. What the table in `faults/table.py` holds them to: of
a fault, one of the causes that it gives is the first finding and the exit code of the diff is
1; of a harmless change the exit code is 0. Prints a row each, and exits 1 where one is wrong.

A program that is to be traced starts while another has the device, and waits for its turn, so
that only one at a time is on it. Needs a CUDA device, PyTorch with Triton, transformers, and
JAX for its program. tests/causes.rs does the same to runs of a suite, without a GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from faults import judging, table


def main() -> None:
    """Traces every change that is asked for and judges it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regatta", default="regatta", help="the program that is tested")
    parser.add_argument("--only", nargs="*", default=[], metavar="PROGRAM/CHANGE")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write a line of JSON a change")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep traces and diffs here")
    parser.add_argument("--jobs", type=int, default=4, help="programs that start at once")
    parser.add_argument("--runs", type=int, default=1, help="of a trace; four find less than 10 %%")
    wanted = parser.parse_args()
    changes = [one for one in table.CHANGES if not wanted.only or one.title in wanted.only]
    if not changes:
        parser.error("no such change")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = wanted.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for row in judge_all(wanted.regatta, changes, folder, wanted.jobs, wanted.runs):
            rows.append(row)
            print(row.shown(), flush=True)
    if wanted.json:
        wanted.json.write_text("".join(f"{row.record()}\n" for row in rows), encoding="utf-8")
    wrong = sum(not row.right for row in rows)
    print(f"{wrong} of {len(rows)} changes are wrong")
    sys.exit(1 if wrong else 0)


def judge_all(
    regatta: str, changes: list[table.Change], folder: Path, jobs: int, runs: int
) -> Iterator[judging.Row]:
    """Traces and judges changes; gives each row as soon as it is known."""
    missing = {
        change: {(change.program, table.BASE), (change.program, change.name)} for change in changes
    }
    every = dict.fromkeys(trace for change in changes for trace in sorted(missing[change]))
    failures: dict[tuple[str, str], str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        traces = {
            pool.submit(judging.traced, regatta, *trace, folder, runs): trace for trace in every
        }
        for ended in as_completed(traces):
            trace = traces[ended]
            if error := ended.exception():
                failures[trace] = str(error)
            for change in [change for change, traces in missing.items() if trace in traces]:
                missing[change].remove(trace)
                if not missing[change]:
                    yield row_of(regatta, change, folder, failures)


def row_of(
    regatta: str, change: table.Change, folder: Path, failures: dict[tuple[str, str], str]
) -> judging.Row:
    """The row of a change whose two traces were taken, or failed."""
    for name in (table.BASE, change.name):
        if failure := failures.get((change.program, name)):
            return judging.Row(change.program, change.name, change.causes, failure=failure)
    return judging.judged(regatta, change, folder)


if __name__ == "__main__":
    main()
