"""What the compiler made of every kernel: registers, stack and spills. Needs no GPU.

    python3 kernels/tests/resources.py [ARCH]

Exits with 1 if a kernel does not compile or spills more than a few registers.
"""

import re
import subprocess
import sys
import tempfile

from launch import FILES, KERNELS, compiler

MOST_SPILLED = 128  # bytes a thread


def main():
    arch = sys.argv[1] if len(sys.argv) > 1 else "sm_90a"
    bad = 0
    for name in FILES:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
            done = subprocess.run([*compiler(arch, name), "-Xptxas", "-v", "-o", cubin.name],
                                  capture_output=True, text=True)
        if done.returncode:
            print(done.stderr)
            return 1
        found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                           r"(\d+) bytes spill loads.*?Used (\d+) registers", done.stderr, re.DOTALL)
        for kernel, stack, stores, loads, registers in sorted(found):
            bad += int(stores) > MOST_SPILLED
            print(f"{kernel:34} {registers:>3} registers  stack {stack:>3}  spilled {stores:>3}/{loads:>3} bytes")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
