"""Checks every kernel against float64 on the GPU, then races it against PyTorch's.

    python3 kernels/tests/check.py                    compile, check, time
    python3 kernels/tests/check.py --cubins DIR       with cubins made elsewhere
    compute-sanitizer python3 kernels/tests/check.py --cubins DIR --memory

--memory launches tiny odd problems on allocations of their exact size, without PyTorch,
for a memory checker to watch. Exits with 1 if any result is outside the tolerance of
crates/worker/src/attention/tolerance.rs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import Driver, build
from memory import memory


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--cubins", help="directory of NAME.cubin files; otherwise they are compiled"
    )
    arguments.add_argument(
        "--memory", action="store_true", help="tiny problems for a memory checker"
    )
    arguments.add_argument("--cases", type=int, help="of --memory, only the first so many")
    arguments.add_argument("--only", nargs="*", default=[], help="variants; --memory: or reference")
    arguments.add_argument("--no-check", action="store_true")
    arguments.add_argument("--no-race", action="store_true")
    arguments.add_argument("--samples", type=int, default=15)
    given = arguments.parse_args()
    cubins = given.cubins
    if not cubins:
        cubins = tempfile.mkdtemp()
        build(cubins)
    if given.memory:
        memory(Driver(cubins), given.only, given.cases)
        return 0
    # PyTorch is not loaded for a memory checker.
    import torch

    from race import race
    from results import check

    torch.zeros(1, device="cuda")
    driver = Driver(cubins)
    bad = 0 if given.no_check else check(driver, given.only)
    if not given.no_race:
        race(driver, given.only, given.samples)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
