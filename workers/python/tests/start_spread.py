"""Whether forked invocations differ as started ones do: `start_spread.py SUITE --regatta PATH`.

Runs a suite's torch cases in invocations that are started and in ones that are forked, in turns,
and prints for each case what lies between invocations of either kind (a robust coefficient of
variation: 1.4826 times the median absolute deviation over the median) and the ratio of their
medians, for device time, host time and first call; below, the median over all cases. The wall
time of either kind is printed last. Exits 1 where some case was not measured, or was not started
as it was to be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

Values = dict[str, dict[str, list[float]]]
"""By case and metric, a value an invocation."""

WAYS = {"exec": "exec", "fork": "forked"}
METRICS = ("device", "host", "first call")


def run(regatta: str, suite: Path, out: Path, invocations: int, more: list[str]) -> float:
    """Runs a suite and gives the seconds it took."""
    begin = time.monotonic()
    words = [regatta, "run", str(suite), "--out", str(out), "--fresh", "--quiet"]
    words += ["--invocations", str(invocations), *more]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, check=False)
    if done.returncode == 2:
        sys.exit(f"{' '.join(words)} measured nothing")
    return time.monotonic() - begin


def read(path: Path, way: str, values: Values) -> int:
    """Adds the values of a run, and gives how many entries are no measurement of this way."""
    wrong = 0
    for line in path.read_text().splitlines():
        entry: dict[str, Any] = json.loads(line)
        if entry["kind"] != "entry":
            continue
        if entry["status"] != "measured" or entry.get("start", {}).get("how") != WAYS[way]:
            print(f"{entry['case']}: {entry.get('reason') or entry.get('start')}")
            wrong += 1
            continue
        of_case = values[entry["case"]]
        of_case["device"].append(statistics.median(entry["device_ns"]))
        if entry.get("host_ns"):
            of_case["host"].append(statistics.median(entry["host_ns"]))
        of_case["first call"].append(entry["first_call_ns"])
    return wrong


def spread(values: list[float]) -> float:
    """What lies between invocations, as a share of their median."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values) / middle


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path, help="a TOML file with no [workers.torch] of its own")
    parser.add_argument("--regatta", default="regatta")
    parser.add_argument("--invocations", type=int, default=16, help="of either kind")
    parser.add_argument("--turns", type=int, default=4)
    asked, more = parser.parse_known_args()
    each = max(1, asked.invocations // asked.turns)
    found: dict[str, Values] = {way: defaultdict(lambda: defaultdict(list)) for way in WAYS}
    seconds, wrong = dict.fromkeys(WAYS, 0.0), 0
    with tempfile.TemporaryDirectory() as folder:
        suites = {}
        for way in WAYS:
            suites[way] = Path(folder) / f"{way}.toml"
            text = asked.suite.read_text()
            suites[way].write_text(f'{text}\n[workers.torch]\nstart = "{way}"\n')
        for turn in range(asked.turns):
            for way in (list(WAYS), list(WAYS)[::-1])[turn % 2]:
                out = Path(folder) / f"{way}-{turn}"
                seconds[way] += run(asked.regatta, suites[way], out, each, more)
                wrong += read(out / "run.jsonl", way, found[way])
    for metric in METRICS:
        print(f"\n{metric}: between invocations, exec and forked; forked / exec")
        rows = []
        for case in sorted(found["exec"].keys() & found["fork"].keys()):
            pair = [found[way][case][metric] for way in WAYS]
            if min(map(len, pair)) < 2:
                continue
            ratio = statistics.median(pair[1]) / statistics.median(pair[0])
            rows.append((spread(pair[0]), spread(pair[1]), ratio))
            middle = statistics.median(pair[0]) / 1e3
            print(f"{rows[-1][0]:7.2%} {rows[-1][1]:7.2%}  {ratio:7.4f}  {middle:11.1f} us  {case}")
        if rows:
            a, b, ratio = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{a:7.2%} {b:7.2%}  {ratio:7.4f}  the median of {len(rows)} cases")
    print(f"\n{each * asked.turns} invocations: exec {seconds['exec']:.1f} s, ", end="")
    print(f"forked {seconds['fork']:.1f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
