"""Every case once, none twice: what the shards of a run hold, and what was merged of them.

    once.py FOLDER INVOCATIONS PLANNED KEPT

PLANNED has the ids of all cases, a line each; KEPT is how many lines the first shard's run had
when its task was killed, which have to be there still.
"""

import collections
import glob
import json
import sys


def entries(path):
    """The cases of a run and their invocations, each entry once."""
    counts = collections.Counter()
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # torn when its task was killed, and measured again
            if entry["kind"] == "entry":
                counts[entry["case"], entry["invocation"]] += 1
    return counts


def main(folder, invocations, planned, kept):
    with open(planned, encoding="utf-8") as file:
        cases = file.read().split()
    wanted = {(case, n): 1 for case in cases for n in range(int(invocations))}
    shards = sorted(glob.glob(f"{folder}/shards/*-of-4/run.jsonl"))
    assert len(shards) == 4, shards
    measured = [entries(path) for path in shards]
    together = sum(measured, collections.Counter())
    assert together == wanted, (together - collections.Counter(wanted), together)
    whole = entries(f"{folder}/run.jsonl")
    assert whole == wanted, "what was merged is not what was measured"
    with open(shards[0], encoding="utf-8") as file:
        assert len(file.readlines()) > int(kept), "what was there was measured again"
    of = [len({case for case, _ in shard}) for shard in measured]
    print(f"{len(cases)} cases in shards of {of}, each {invocations} times, none twice")


if __name__ == "__main__":
    main(*sys.argv[1:])
