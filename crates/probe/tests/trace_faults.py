"""Does `regatta diff` of two traces name the cause of a slowdown, and nothing else?

    python3 crates/probe/tests/trace_faults.py --regatta target/release/regatta --keep FOLDER

Traces programs on a GPU (a step of attention, training of Llama, CUDA kernels) as they should
be, then once with each fault and each harmless change of `faults/table.py`.
Of a fault, one of the causes in the table is the first finding, and `diff` exits with 1; of a
harmless change it exits with 0. Prints a row each, and exits with 1 where one is wrong. Traces
that are in FOLDER are not taken again.

Needs a CUDA device, PyTorch and transformers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from faults.table import BASE, CHANGES, Change

MAIN = Path(__file__).resolve().parent / "faults/main.py"


def main() -> None:
    """Traces and judges every change that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regatta", default="regatta", help="the program that is tested")
    parser.add_argument("--only", nargs="*", default=[], metavar="PROGRAM/CHANGE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep traces here")
    parser.add_argument("--runs", type=int, default=1, help="of a trace; four find less than 10 %%")
    wanted = parser.parse_args()
    changes = [change for change in CHANGES if not wanted.only or change.title in wanted.only]
    if not changes:
        parser.error("no such change")
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = wanted.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for change in changes:
            traces = [
                trace(wanted.regatta, change.program, variant, folder, wanted.runs)
                for variant in (BASE, change.name)
            ]
            command = [wanted.regatta, "diff", "--json", *map(str, traces)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            right, shown = judge(change, done.returncode, json.loads(done.stdout))
            wrong += not right
            print(shown, flush=True)
    print(f"{wrong} of {len(changes)} changes are wrong")
    sys.exit(1 if wrong else 0)


def trace(regatta: str, program: str, change: str, folder: Path, runs: int) -> Path:
    """The trace of a program with a change; exits where the program fails."""
    path = folder / f"{program}-{change}.trace"
    if not path.exists():
        command = [regatta, "trace", "--runs", str(runs), "--out", str(path), "--"]
        subprocess.run([*command, sys.executable, str(MAIN), program, change], check=True)
    return path


def judge(change: Change, code: int, answer: dict[str, Any]) -> tuple[bool, str]:
    """Whether `diff` says what the table expects of a change, and the row that shows it."""
    found = [finding["cause"] for finding in answer["findings"]]
    right = code == 0
    if change.causes:
        right = code == 1 and found[:1] != [] and found[0] in change.causes
    told = [f"{finding['cause']}: {finding['evidence']}" for finding in answer["findings"]]
    row = (
        f"{'ok' if right else 'WRONG':5} {change.title:38} exit {code}  {(told or ['nothing'])[0]}"
    )
    if right:
        return right, row
    wanted = " or ".join(change.causes) or "nothing worse"
    expected = f"      expected {wanted}; {answer['verdict']['reasons']}"
    return right, "\n".join([row, expected, *(f"      then {line}" for line in told[1:])])


if __name__ == "__main__":
    main()
