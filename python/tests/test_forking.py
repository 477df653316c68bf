"""Workers that are forked, as far as no harness is needed."""

import errno
import os
from collections.abc import Callable

import pytest

from regatta_worker import forking


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
