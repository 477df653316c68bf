"""Private names of libraries, looked up in what is installed. It is not imported: no GPU is needed.

`REGATTA_TEST_LIBRARIES` names a folder of further packages (`pip install --no-deps --target`).
"""

import ast
import importlib.metadata
import mmap
import os
import re
import symtable
import sys
from pathlib import Path

import pytest

import support
from regatta_worker.census.private import PRIVATE, Private

FOLDERS = [*filter(None, [os.environ.get("REGATTA_TEST_LIBRARIES")]), *sys.path]

PUBLIC = {("os", "_exit"), ("of", "_replace"), ("sys", "_getframe")}
"""Begin with an underscore, and are documented."""


def version(package: str) -> str | None:
    """The version that is installed, of the first of the folders that has one."""
    found = importlib.metadata.distributions(name=package, path=FOLDERS)
    return next((distribution.version for distribution in found), None)


def claimed(package: str, installed: str) -> bool:
    """True where a document or a file of requirements pins the version."""
    files = [*support.ROOT.glob("python/requirements-*.txt"), support.ROOT / "docs" / "SYSTEMS.md"]
    pin = re.escape(f"{package}=={installed}") + r"(?![\w.])"
    return any(re.search(pin, file.read_text()) for file in files)


def exists(wanted: Private, folders: list[str]) -> bool:
    if wanted.module.startswith("torch.ops."):
        import torch

        return hasattr(getattr(torch.ops, wanted.module.rpartition(".")[2]), wanted.name)
    if wanted.module.endswith(".so"):
        paths = (Path(folder, wanted.package, "lib", wanted.module) for folder in folders)
        return any(path.is_file() and holds(path, wanted.name) for path in paths)
    relative = wanted.module.replace(".", "/")
    for folder in folders:
        for end in (".py", "/__init__.py"):
            if (path := Path(folder, relative + end)).is_file():
                return defines(path.read_text(), wanted.name)
    return False


def holds(path: Path, pattern: str) -> bool:
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
    ):
        return text.find(pattern.removesuffix("*").encode()) >= 0


def defines(code: str, name: str) -> bool:
    """True where a module binds a name, or has a class with a member of that name."""
    owner, _, member = name.rpartition(".")
    module = symtable.symtable(code, "", "exec")
    for scope in (module, *module.get_children()):
        if scope.get_name() == (owner or "top") and member in scope.get_identifiers():
            symbol = scope.lookup(member)
            if symbol.is_assigned() or symbol.is_imported():
                return True
    # A method sets it.
    return any(
        isinstance(node, ast.Attribute) and node.attr == member and isinstance(node.ctx, ast.Store)
        for each in ast.walk(ast.parse(code))
        if isinstance(each, ast.ClassDef) and each.name == owner
        for node in ast.walk(each)
    )


@pytest.mark.parametrize("package", sorted({name.package for name in PRIVATE}))
def test_the_names_exist_in_a_version_that_is_claimed(package: str) -> None:
    installed = version(package)
    if installed is None:
        pytest.skip(f"{package} is not installed")
    missing = []
    for name in (each for each in PRIVATE if each.package == package):
        there = exists(name, FOLDERS)
        print(f"{package} {installed}: {name} {'exists' if there else 'IS GONE'}: {name.used_for}")
        missing += [] if there else [str(name)]
    if missing and not claimed(package, installed):
        pytest.skip(f"{package} {installed} is not claimed, and has no {', '.join(missing)}")
    assert not missing


def test_a_name_that_is_gone_is_found(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(
        "try:\n    from other import _taken as _kept\nexcept ImportError:\n    _kept = None\n"
        "class Tuner:\n    RULE = 1\n    def __init__(self):\n        self._plan = 0\n"
        "def outer():\n    def _inner(): pass\n"
    )

    def there(name: str) -> bool:
        return exists(Private("library", "library", name, ""), [str(tmp_path)])

    assert all(map(there, ("_kept", "Tuner", "Tuner.RULE", "Tuner._plan", "Tuner.__init__")))
    assert not any(map(there, ("_taken", "_inner", "_plan", "RULE", "Tuner.run", "Other.run")))
    assert not exists(Private("library", "gone", "_kept", ""), [str(tmp_path)])
    (tmp_path / "library" / "lib").mkdir(parents=True)
    (tmp_path / "library" / "lib" / "lib.so").write_bytes(b"\0fmha_B_f32\0")
    kernel = Private("library", "lib.so", "fmha_B_*", "")
    assert exists(kernel, [str(tmp_path)])
    assert not exists(kernel._replace(name="fmha_C_*"), [str(tmp_path)])


def test_no_private_name_stands_outside_the_table() -> None:
    """Attributes of what is not the worker's own, and modules that are imported."""
    table = {part for name in PRIVATE for part in f"{name.module}.{name.name}".split(".")}
    strays = []
    for file in support.WORKER.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            used: set[str] = set()
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value)
                if owner not in ("self", "cls") and (owner, node.attr) not in PUBLIC:
                    used = {node.attr}
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                if not (node.module or "").startswith("regatta_worker"):
                    imported = {alias.name for alias in node.names}
                    used = {*(node.module or "").split("."), *imported}
            elif isinstance(node, ast.Import):
                used = {part for alias in node.names for part in alias.name.split(".")}
            private = {name for name in used if re.match(r"_[a-zA-Z]", name)}
            strays += [f"{file.name}:{node.lineno}: {name}" for name in private - table]  # type: ignore[attr-defined]
    assert not strays
