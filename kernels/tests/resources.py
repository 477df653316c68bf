"""What the compiler made of every kernel: registers, stack and spills. Needs no GPU.

    python3 kernels/tests/resources.py [ARCH ...]        sm_90a unless told

Exits with 1 if a kernel does not compile or spills more than a few registers.
"""

import re
import subprocess
import sys
import tempfile

from launch import FILES, compiler

MOST_SPILLED = 128  # bytes a thread
HOPPER_ONLY = ("flash_wgmma", "flash_wgmma_backward")


def report(arch, name):
    """Prints the kernels of one file; returns how many spill too much."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        done = subprocess.run([*compiler(arch, name), "-Xptxas", "-v", "-o", cubin.name],
                              capture_output=True, text=True)
    if done.returncode:
        print(done.stderr)
        return 1
    found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                       r"(\d+) bytes spill loads.*?Used (\d+) registers", done.stderr, re.DOTALL)
    for kernel, stack, stores, loads, registers in sorted(found):
        print(f"{arch:7} {kernel:34} {registers:>3} registers  stack {stack:>3}  "
              f"spilled {stores:>3}/{loads:>3} bytes")
    return sum(int(stores) > MOST_SPILLED for _, _, stores, _, _ in found)


def main():
    bad = 0
    for arch in sys.argv[1:] or ["sm_90a"]:
        for name in FILES:
            if name not in HOPPER_ONLY or arch == "sm_90a":
                bad += report(arch, name)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
