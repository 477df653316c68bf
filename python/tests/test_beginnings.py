"""Processes that are forked, and what one that outlives a saved file has imported."""

import errno
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from regatta_worker import forking, serving
from regatta_worker.beginnings import Imported, code_of_user
from regatta_worker.main import ahead_of
from regatta_worker.protocol.channel import Worker

CASES = {
    "in order, before the first code": (
        'import json\n"""Words."""\nfrom one import *\nx = 1\nimport two\n',
        ["one"],
    ),
    "not behind a variable that it reads": ('import os\nos.environ["X"] = "1"\nimport one\n', []),
    "not behind code of the user's": ("import own\nimport two\n", ["one"]),
    "behind a whole file of imports": ("from pack.inner import f\nimport two\n", ["one", "two"]),
    "not one that is missing": ("import missing\nimport one\n", []),
    "not of a file that is broken": ("import one\nreturn )\n", []),
    "several at once": ("import one, own, two\n", ["one"]),
    "not a file that hides a library": ("import json, hidden, two\n", []),
    "not what is relative": ("from . import own\nimport one\n", []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_file_begins_with(name: str, tmp_path: Path) -> None:
    code, expected = CASES[name]
    library, own = tmp_path / "site-packages", tmp_path / "own"
    for file, text in {
        library / "one.py": "print('one')",
        library / "two.py": "print('two')",
        library / "hidden.py": "print('a library')",
        own / "hidden.py": "print('code')",
        own / "own.py": "import one\nprint('code')",
        own / "pack/__init__.py": "import one",
        own / "pack/inner.py": "import two\n\ndef f(): pass\nprint('code')",
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    package = Path(__file__).parents[1]
    begins = (
        f"import sys; sys.path.insert(0, {str(package)!r}); "
        "from regatta_worker.beginnings import import_libraries as begin; "
        f"sys.path[:0] = [{str(own)!r}]; sys.path.append({str(library)!r}); "
        f"begin({code.encode()!r})"
    )
    run = subprocess.run([sys.executable, "-c", begins], capture_output=True, text=True, check=True)
    assert run.stdout.split() == expected


def test_what_was_imported_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, own = tmp_path / "site-packages", tmp_path / "own"
    for folder in (library, own):
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
    file = library / "a_library.py"
    file.write_text("")
    assert Imported(time.time_ns()).changed() == ""
    __import__("a_library")
    try:
        assert Imported(0).changed() != "", "imported before it was looked at"
        time.sleep(0.02)

        def changed_by(path: Path, text: str) -> str:
            imported = Imported(time.time_ns())
            assert imported.changed() == ""
            path.write_text(text)
            return imported.changed()

        os.utime(file)
        time.sleep(0.02)
        assert changed_by(own / "mine_alone.py", "") == ""
        assert changed_by(file, "x = 1") == f"{file} changed"
        time.sleep(0.02)
        assert changed_by(library / "other.py", "") == f"{library} changed"
        time.sleep(0.02)
        assert changed_by(library / "other.pth", "") == f"{library} changed"
        time.sleep(0.02)
        assert changed_by(own / "a_library.py", "") == f"{own} with another module changed"
    finally:
        del sys.modules["a_library"]


def test_links_of_the_interpreter_are_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of Debian: /usr/lib/python3.12/sitecustomize.py leads to /etc/python3.12.
    interpreter, file = tmp_path / "lib", tmp_path / "sitecustomize.py"
    interpreter.mkdir()
    file.write_text("")
    (interpreter / file.name).symlink_to(file)
    module = ModuleType("sitecustomize")
    monkeypatch.setattr(sys, "modules", {"sitecustomize": module})
    for place in (file, interpreter / file.name):
        module.__file__ = str(place)
        assert code_of_user() == str(place)
    monkeypatch.setattr(serving, "_own_places", lambda: ("/worker/", f"{interpreter}/"))
    assert not code_of_user()


class TestAhead:
    """Workers that are forked before the code that they serve is saved."""

    def test_code_is_as_it_is_when_it_is_wanted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        file = tmp_path / "served_ahead.py"
        file.write_text("VALUE = 1\n")
        opening = ahead_of(lambda: cast("Worker", importlib.import_module("served_ahead")))
        file.write_text("VALUE = 20\n")
        assert vars(opening())["VALUE"] == 20

    @pytest.mark.parametrize("code", ["os.environ['CUDA_VISIBLE_DEVICES'] = '7'", "1 / 0"])
    def test_another_takes_the_place_of_one_that_cannot_serve(self, code: str) -> None:
        process = os.fork()
        if process == 0:
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 2)
            ahead_of(lambda: cast("Worker", exec(code)))()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1


def _drawn(draw: Callable[[], float]) -> bytes:
    """The first number that a forked process draws."""
    read, write = os.pipe()
    worker = os.fork()
    if worker == 0:
        forking._draw_again()
        os.write(write, repr(draw()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(worker, 0)
    return drawn


@pytest.mark.parametrize("module", ["random", "numpy.random"])
def test_forked_workers_draw_what_started_ones_would(module: str) -> None:
    draw = pytest.importorskip(module).random
    assert len({_drawn(draw) for _ in range(3)}) == 3


def test_a_fork_that_fails_in_between_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, server = os.fork, os.getpid()

    def first_alone() -> int:
        if os.getpid() == server:
            return fork()
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", first_alone)
    with pytest.raises(OSError, match="forks the supervisor: Resource temporarily unavailable"):
        forking._forked({}, [])
