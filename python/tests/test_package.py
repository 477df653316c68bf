"""The start of the package, and the imports that its parts may have."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import support
from regatta_worker import LAYERS

COMMON = ("channel", "device", "inputs", "packing", "probe", "problem", "timing", "torch")
"""Names that a library's modules may have, and modules of ours do."""

SAYS_WHAT_IS_FOUND = f"""
import atexit, importlib.util, sys

def say():
    print(sys.path[0])
    for name in {COMMON}:
        print(importlib.util.find_spec(name).origin)

atexit.register(say)
"""


def test_the_users_modules_are_found_and_none_of_ours(tmp_path: Path) -> None:
    worker, theirs = tmp_path / "cache" / "regatta_worker", tmp_path / "theirs"
    shutil.copytree(support.WORKER, worker)
    theirs.mkdir()
    for name in COMMON:
        (theirs / f"{name}.py").touch()
    (theirs / "sitecustomize.py").write_text(SAYS_WHAT_IS_FOUND)
    done = subprocess.run(
        [sys.executable, str(worker), "--library", "torch"],
        env=os.environ | {"PYTHONPATH": str(theirs)},
        cwd=worker,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "descriptor 3 is not open" in done.stderr
    own, *found = done.stdout.splitlines()
    assert own == str(worker.parent)
    assert found == [str(theirs / f"{name}.py") for name in COMMON]


def test_no_value_of_an_environment_variable_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for prefix in ("NVIDIA", "TORCH", "CUDA", "JAX", "XLA", "OMP", "HF", "MY"):
        for number, name in enumerate(("API_KEY", "TOKEN", "SECRET", "PASSWORD", "FLAGS")):
            monkeypatch.setenv(f"{prefix}_PLANTED_{name}", f"planted{number}-{prefix}")
    file = tmp_path / "bench.py"
    file.write_text("def attention(q, k, v): return q\ndef fails(q, k, v): raise OSError('no')\n")
    worker = support.StartedWorker(("--file", str(file), "--name", "mine"))
    replies = [
        worker.hello,
        worker.prepare("fails"),
        worker.prepare("attention"),
        worker.ask("measure", **support.PLAN),
        worker.ask("census"),
    ]
    assert [reply["type"] for reply in replies][1:3] == ["failed", "prepared"]
    assert worker.exit_status() == 0
    assert b"Traceback" in worker.log
    assert "planted" not in json.dumps(replies) + worker.log.decode()


def test_imports_run_one_way() -> None:
    parts = {file.stem for file in support.WORKER.iterdir() if not file.name.startswith("__")}
    assert parts - {"py"} == set(LAYERS)
    for file in support.WORKER.rglob("*.py"):
        part = file.relative_to(support.WORKER).parts[0].removesuffix(".py")
        for name in set() if part.startswith("__") else imported(file):
            assert LAYERS.index(name) <= LAYERS.index(part)


def imported(file: Path) -> set[str]:
    """The parts of the package that a file imports from, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "regatta_worker":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regatta_worker."):
            found.add((node.module or "").split(".")[1])
    return found
