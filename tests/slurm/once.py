"""Every case once, none twice: what the shards of a run hold.

    once.py FOLDER INVOCATIONS PLANNED KEPT

PLANNED has the ids of all cases, a line each; KEPT is how many lines the first shard's run had
when its task was killed, which have to be there still.
"""

import collections
import glob
import json
import sys


def entries(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    found = [line for line in lines if line["kind"] == "entry"]
    return collections.Counter((entry["case"], entry["invocation"]) for entry in found)


def main(folder, invocations, planned, kept):
    with open(planned, encoding="utf-8") as file:
        cases = file.read().split()
    wanted = collections.Counter((case, n) for case in cases for n in range(int(invocations)))
    measured = [entries(path) for path in sorted(glob.glob(f"{folder}/shard-*-of-4/run.jsonl"))]
    assert sum(measured, collections.Counter()) == wanted, measured
    assert measured[0].total() + 2 > int(kept), "what was there was measured again"
    of = [len({case for case, _ in shard}) for shard in measured]
    print(f"{len(cases)} cases in shards of {of}, each {invocations} times, none twice")


if __name__ == "__main__":
    main(*sys.argv[1:])
