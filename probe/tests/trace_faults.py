"""Does `regatta diff` of two traces name the cause of a slowdown, and nothing else?

    python3 probe/tests/trace_faults.py --regatta target/release/regatta

Programs on a GPU (Llama in training and in generation, FlexAttention, torch.compile, JAX,
Triton, CUDA, NCCL on two; `--list` names them) are traced as they should be, then once with
each of their faults and harmless changes. What the table in `faults/table.py` holds them to: of
a fault, one of the causes that it gives is the first finding and the exit code of the diff is
1; of a harmless change the exit code is 0. Prints a row each, with what the kernels did where it
does not hold, and exits 1 where one does not.

A program that is to be traced starts while another has the device, and waits for its turn, so
that only one at a time is on it. Needs a CUDA device, PyTorch with Triton, transformers, and
JAX for its program. tests/causes.rs does the same to runs of a suite, without a GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from faults import judging, table


def main() -> None:
    """Traces every change that is asked for and judges it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--regatta", default="regatta", help="the program that is tested")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="CHANGE",
        help="these alone, by name (clone) or by program and name (attention/clone)",
    )  # fmt: skip
    parser.add_argument("--programs", nargs="*", default=[], metavar="PROGRAM", help="these alone")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write a line of JSON a change")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep traces and diffs here")
    parser.add_argument(
        "--jobs", type=int, default=4, help="programs that start at once [default: 4]"
    )
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N",
        help="runs of a trace: from four on, what is less than 10 %% slower is told [default: 1]",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument(
        "--untraced", action="store_true", help="only run the programs, and say how long a step is"
    )
    wanted = parser.parse_args()
    changes = list(chosen(wanted.programs, wanted.only))
    if not changes:
        parser.error("no such change; --list names them")
    if wanted.list:
        for change in changes:
            causes = " or ".join(change.causes) or "harmless"
            print(f"{change.title:40} {causes:46} {change.why}")
        return
    changes = list(possible(changes))
    if wanted.untraced:
        sys.exit(run_all(changes))
    rows = []
    if wanted.json:
        wanted.json.write_text("", encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = wanted.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for row in judge_all(wanted.regatta, changes, folder, wanted.jobs, wanted.runs):
            rows.append(row)
            print(row.shown(), flush=True)
            if wanted.json:
                with wanted.json.open("a", encoding="utf-8") as lines:
                    lines.write(row.record() + "\n")
    for word, some in (
        ("faults", [row for row in rows if row.expected]),
        ("harmless changes", [row for row in rows if not row.expected]),
    ):
        print(f"{sum(row.held for row in some)} of {len(some)} {word} hold")
    sys.exit(0 if all(row.held for row in rows) else 1)


def chosen(programs: list[str], only: list[str]) -> Iterator[table.Change]:
    """The changes of these names, or all, of these programs in their order, or all."""
    for program in programs or table.PROGRAMS:
        for change in table.CHANGES:
            named = not only or change.name in only or change.title in only
            if change.program == program and named:
                yield change


def possible(changes: list[table.Change]) -> Iterator[table.Change]:
    """Those for which there are GPUs enough; says of which programs there are not."""
    import torch

    there = torch.cuda.device_count()
    for program in bases(changes):
        needed = table.DEVICES.get(program, 1)
        if there < needed:
            print(f"{program}: not run, it needs {needed} GPUs and there are {there}", flush=True)
        else:
            yield from (change for change in changes if change.program == program)


def bases(changes: list[table.Change]) -> list[str]:
    """The programs of these changes, each once."""
    return list(dict.fromkeys(change.program for change in changes))


def run_all(changes: list[table.Change]) -> int:
    """Runs programs without tracing them; 1 where one fails."""
    failed = 0
    every = [(program, table.BASE) for program in bases(changes)]
    for program, name in every + [(change.program, change.name) for change in changes]:
        failed |= subprocess.run([sys.executable, str(judging.MAIN), program, name]).returncode
    return 1 if failed else 0


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
            error = ended.exception()
            if error:
                failures[trace] = str(error)
            for change in [change for change, traces in missing.items() if trace in traces]:
                missing[change].remove(trace)
                if not missing[change]:
                    yield row_of(regatta, change, folder, failures)


def row_of(
    regatta: str, change: table.Change, folder: Path, failures: dict[tuple[str, str], str]
) -> judging.Row:
    """The row of a change that is traced, or failed as told."""
    for name in (table.BASE, change.name):
        if failure := failures.get((change.program, name)):
            return judging.Row(change.program, change.name, change.causes, failure=failure)
    return judging.judged(regatta, change, folder)


if __name__ == "__main__":
    main()
