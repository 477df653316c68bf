"""`regatta trace --torch`: the module that turns PyTorch's ranges on, with a stand-in for torch."""

import os
import subprocess
import sys
from pathlib import Path

RANGES = Path(__file__).parent.parent / "regatta_ranges"

TORCH = """
import types
calls = []
cuda = types.SimpleNamespace(synchronize=lambda: calls.append("initialised"))
class emit_nvtx:
    def __init__(self, record_shapes): pass
    def __enter__(self):
        cuda.synchronize()
        calls.append("on")
    def __exit__(self, *_):
        print("off")
autograd = types.SimpleNamespace(profiler=types.SimpleNamespace(emit_nvtx=emit_nvtx))
"""


def ran(folder: Path, code: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Runs code with the module first on Python's path, and these modules behind it."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(RANGES), str(folder)])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_ranges_are_on_once_torch_is_imported(tmp_path: Path) -> None:
    code = "import torch; import torch; torch.cuda.synchronize(); print(torch.calls)"
    done = ran(tmp_path, code, torch=TORCH)
    assert done.stdout == "['on', 'initialised']\noff\n", "by the program, not by us"
    assert done.stderr == ""


def test_a_torch_that_cannot_is_one_line_and_runs_on(tmp_path: Path) -> None:
    refuses = TORCH + "\ndef refuse(*_): raise RuntimeError('built without CUDA\\nand more')\n"
    refuses += "emit_nvtx.__enter__ = refuse\n"
    done = ran(tmp_path, "import torch; print('ran')", torch=refuses)
    assert done.stdout == "ran\n"
    assert done.stderr == (
        "regatta trace --torch: PyTorch's ranges are not on: built without CUDA\n"
    )


def test_the_users_own_module_runs_too(tmp_path: Path) -> None:
    done = ran(tmp_path, "import mark", sitecustomize="print('mine')", mark="print('then')")
    assert done.stdout == "mine\nthen\n"


def test_without_torch_nothing_differs(tmp_path: Path) -> None:
    code = "import importlib.util as u; print(u.find_spec('no_such_module'))"
    done = ran(tmp_path, code)
    assert (done.stdout, done.stderr) == ("None\n", "")
