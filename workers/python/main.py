"""Starts the Python worker for one library: `python3 main.py --library torch`."""

from __future__ import annotations

import argparse
import functools
import importlib
import traceback
from pathlib import Path

from absence import absence
from channel import Absent, Session, Worker, open_descriptors, serve

SUFFIX = "_worker.py"


def libraries() -> list[str]:
    """The libraries there is a worker for: each has a file, `LIBRARY_worker.py`."""
    here = Path(__file__).parent
    return sorted(file.name.removesuffix(SUFFIX) for file in here.glob(f"*{SUFFIX}"))


def open_worker(library: str, rank: int | None = None) -> Worker:
    """The worker of a library, which is imported here and not before; or one rank of it."""
    try:
        if rank is not None:
            return importlib.import_module(f"{library}_rank").RANK(rank)
        return importlib.import_module(f"{library}_worker").WORKER()
    except ImportError as error:
        traceback.print_exc()
        module = error.name or library
        what = f"the Python module `{module}`, which library `{library}` needs,"
        raise Absent(absence(what, error, module.partition(".")[0])) from error


def main() -> None:
    """Serves requests on descriptors 3 and 4 until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, choices=libraries())
    parser.add_argument("--rank", type=int, help="one rank of a library of several processes")
    asked = parser.parse_args()
    requests, replies = open_descriptors()
    opening = functools.partial(open_worker, asked.library, asked.rank)
    serve(Session(opening, asked.library), requests, replies)


if __name__ == "__main__":
    main()
