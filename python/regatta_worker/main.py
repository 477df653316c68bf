"""Serves one library, one rank of it, or somebody's functions.

python3 PATH/regatta_worker --library torch
python3 PATH/regatta_worker --file bench.py --function rmsnorm --name mine
python3 PATH/regatta_worker --script bench.py --name mine -- --quick
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

from regatta_worker import libraries
from regatta_worker.callables import load as callables
from regatta_worker.exits import announced
from regatta_worker.forking import fork_workers
from regatta_worker.protocol.channel import Absent, Failed, Worker
from regatta_worker.protocol.refusals import absence
from regatta_worker.script.running import Target
from regatta_worker.script.worker import serve_script
from regatta_worker.serving import (
    Session,
    installed,
    loaded,
    open_descriptors,
    put_off_collections,
    serve,
)

OF_DEVICES = ("CUDA", "NVIDIA", "PYTORCH")
"""Prefixes of the environment variables that decide how a device is opened."""


def names() -> list[str]:
    """Returns the libraries that have a worker, each in a file `libraries/LIBRARY.py`."""
    files = Path(libraries.__file__).parent.glob("[!_]*.py")
    return sorted(file.stem for file in files)


def open_worker(library: str, rank: int | None = None) -> Worker:
    """Imports a library and returns its worker, or the worker of one rank."""
    try:
        if rank is not None:
            module = importlib.import_module(f"regatta_worker.ranks.{library}")
            return cast("Worker", module.RANK(rank))
        module = importlib.import_module(f"regatta_worker.libraries.{library}")
        return cast("Worker", module.WORKER())
    except ImportError as error:
        traceback.print_exc()
        lacking = error.name or library
        what = f"the Python module `{lacking}`, which library `{library}` needs,"
        raise Absent(absence(what, error, lacking.partition(".")[0])) from error


def open_reference(file: str, function: str) -> Worker:
    """Returns the worker of an operator's reference. NumPy is only imported here."""
    try:
        module = importlib.import_module("regatta_worker.callables.operators.reference")
    except ModuleNotFoundError as error:
        raise Failed(f"a reference needs NumPy: {sys.executable} has no `{error.name}`") from error
    return cast("Worker", module.open_reference(file, function))


def load(library: str) -> None:
    """Imports a library without creating its worker, which would look for a device."""
    module = importlib.import_module(f"regatta_worker.libraries.{library}")
    if hasattr(module.WORKER, "preload"):
        module.WORKER.preload()


def ahead_of(opening: Callable[[], Worker]) -> Callable[[], Worker]:
    """Opens the device now. Returns a function that opens the worker, with the code as it is then.

    If that fails, or if the code sets a variable that decides how a device is opened, the process
    ends. A process that is forked later takes its place and reports the error.
    """

    def variables() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith(OF_DEVICES)}

    def opened() -> Worker:
        importlib.invalidate_caches()
        worker = opening()
        if variables() != before:
            raise Failed("the code sets variables of the device, which is open")
        return worker

    def or_ends(work: Callable[[], Worker]) -> Worker:
        try:
            return work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    before = variables()
    if "torch" in sys.modules:
        library = importlib.import_module("regatta_worker.on_torch.library")
        or_ends(library.device_opened)
    return lambda: or_ends(opened)


def main() -> None:
    """Serves requests on descriptors 3 and 4 until a request to stop."""
    parser = argparse.ArgumentParser("regatta_worker", description=__doc__)
    served = parser.add_mutually_exclusive_group(required=True)
    served.add_argument("--library", choices=names())
    served.add_argument("--file", help="a file of functions")
    served.add_argument("--reference", help="a file with the reference of an operator")
    served.add_argument("-m", dest="module", help="a module of functions")
    served.add_argument("--script", help="a script that calls a timer")
    parser.add_argument("arguments", nargs="*", help="of the script, after `--`")
    parser.add_argument("--function", help="the one function; else each public one")
    parser.add_argument("--name", default="mine", help="what the worker of functions is called")
    parser.add_argument("--rank", type=int, help="one rank of a library of several processes")
    parser.add_argument(
        "--forks",
        choices=("auto", "always"),
        help="import the library and fork workers: where a GPU is seen, or always",
    )
    parser.add_argument(
        "--keep", action="store_true", help="fork a server for each answer, which forks workers"
    )
    asked = parser.parse_args()
    if asked.script:
        # High numbers, because a script may close the usual descriptors, as daemons do.
        requests, replies = open_descriptors(least=512)
        serve_script(Target(asked.name, asked.script, tuple(asked.arguments)), requests, replies)
        return
    put_off_collections()
    folders: tuple[str, ...] = ()
    opening: Callable[[], Worker]
    if asked.library:
        name: str = asked.library
        beginning = loading = functools.partial(load, name)
        opening = functools.partial(open_worker, name, asked.rank)
    elif asked.reference:
        name = asked.name
        beginning = loading = functools.partial(load, "")
        opening = functools.partial(open_reference, asked.reference, asked.function)
    else:
        target = callables.Target(asked.name, asked.file, asked.module, asked.function)
        name, folders = target.name, (target.folder,)
        beginning = functools.partial(callables.begin, target)
        loading = functools.partial(callables.preload, target)
        opening = functools.partial(callables.open_worker, target)
    if asked.forks:
        serves = not asked.keep
        if asked.keep:
            serves = fork_workers((beginning,), asked.forks == "always", stays=folders)
            importlib.invalidate_caches()
        if serves:
            # Returns in each worker, which continues as if it had been started. The origins of
            # modules and the installed packages are looked up once for all forked workers.
            fork_workers((loading, loaded, installed), asked.keep or asked.forks == "always")
        else:
            opening = ahead_of(opening)
    requests, replies = open_descriptors()
    announced()
    serve(Session(opening, name), requests, replies)
    if asked.forks:
        # Shutting down an interpreter with torch takes longer than starting a worker.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
