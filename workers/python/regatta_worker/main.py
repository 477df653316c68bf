"""Serves one library, or one rank of it: `python3 PATH/regatta_worker --library torch`."""

from __future__ import annotations

import argparse
import functools
import importlib
import traceback
from pathlib import Path
from typing import cast

from regatta_worker import libraries
from regatta_worker.forking import fork_workers
from regatta_worker.protocol.absence import absence
from regatta_worker.protocol.channel import Absent, Worker
from regatta_worker.serving import Session, open_descriptors, serve


def names() -> list[str]:
    """The libraries there is a worker for: each has a file, `libraries/LIBRARY.py`."""
    files = Path(libraries.__file__).parent.glob("[!_]*.py")
    return sorted(file.stem for file in files)


def open_worker(library: str, rank: int | None = None) -> Worker:
    """The worker of a library, which is imported here and not before; or one rank of it."""
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


def load(library: str) -> None:
    """Imports a library, and makes no worker of it, which would look for a device."""
    module = importlib.import_module(f"regatta_worker.libraries.{library}")
    if hasattr(module.WORKER, "preload"):
        module.WORKER.preload()


def main() -> None:
    """Serves requests on descriptors 3 and 4 until told to stop."""
    parser = argparse.ArgumentParser("regatta_worker", description=__doc__)
    parser.add_argument("--library", required=True, choices=names())
    parser.add_argument("--rank", type=int, help="one rank of a library of several processes")
    parser.add_argument(
        "--forks",
        choices=("auto", "always"),
        help="import the library and fork workers: where a GPU is seen, or always",
    )
    asked = parser.parse_args()
    if asked.forks:
        # Returns in each worker, which goes on as one that was started.
        fork_workers(functools.partial(load, asked.library), asked.forks == "always")
    requests, replies = open_descriptors()
    opening = functools.partial(open_worker, asked.library, asked.rank)
    serve(Session(opening, asked.library), requests, replies)
