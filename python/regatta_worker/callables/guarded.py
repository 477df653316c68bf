"""What goes wrong in somebody's function, told with the line of theirs that it came through."""

from __future__ import annotations

import traceback
from typing import Any

from regatta_worker.callables.load import Target, placed
from regatta_worker.protocol.channel import Failed, Lost, Message, Unsupported


class Guarded:
    """Before a worker among its bases: `prepare`, which makes the first call, in these words."""

    _target: Target

    def prepare(self, request: Message) -> Message:
        """As the worker's own."""
        worker: Any = super()
        try:
            prepared: Message = worker.prepare(request)
        except (Failed, Lost, Unsupported):
            raise
        except NotImplementedError as error:
            raise Unsupported(str(error) or type(error).__name__) from error
        except Exception as error:
            traceback.print_exc()
            where = self._target.where(request.get("variant", ""))
            raise Failed(f"{where}: {placed(self._target.file, error)}") from error
        return prepared
