"""Starts the worker: `python3 PATH/regatta_worker --library torch`, or `-m regatta_worker`."""

import sys
from pathlib import Path

if not __package__:
    # Python has put this folder first on the path, where `device`, `inputs` and
    # `libraries/torch.py` would shadow other modules. The parent folder has only this package.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from regatta_worker.main import main

main()
