"""The folder that the ranks of a worker share."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from regatta_worker.ranks.processes import SharedFolder

HOLDS = """
import sys
from regatta_worker.ranks.processes import SharedFolder
folder = SharedFolder()
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_a_killed_workers_folder_is_removed_and_a_living_ones_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "regatta-ranks-file").write_text("a file of that name")
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdout
        held = Path(worker.stdout.readline().strip())
        (held / "agreement").write_text("words")
        first = SharedFolder()
        assert held.exists()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        second = SharedFolder()
        assert not held.exists()
        assert first.path.exists()
    first.remove()
    second.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["regatta-ranks-file"]
