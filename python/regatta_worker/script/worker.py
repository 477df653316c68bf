"""The worker of a script: its cases are calls of timers, in the order in which the script makes
them."""

from __future__ import annotations

import functools
import gc
import sys
import traceback
from typing import Any, BinaryIO

from regatta_worker import device
from regatta_worker.census import functions, launches
from regatta_worker.clock import timing
from regatta_worker.protocol.channel import Failed, Message, Unavailable
from regatta_worker.script import places
from regatta_worker.script.results import outputs
from regatta_worker.script.running import Script, Target, wanted
from regatta_worker.script.timing import ScriptCase, torch_on_gpu
from regatta_worker.serving import Session

PACKAGES = ("numpy", "torch", "triton", "jax", "cupy", "numba")
"""The packages whose versions a reading depends on, if the script imported them."""


class ScriptWorker:
    """Answers the requests that a script is stopped for."""

    def __init__(self, script: Script) -> None:
        if script.call is None:
            raise Failed(script.no_timer())
        self.script = script
        torch = torch_on_gpu(script.call.timed)
        self.gpu = device.NvidiaDevice(torch.cuda.current_device()) if torch else None

    def hello(self) -> Message:
        found = device.versions(package for package in PACKAGES if package in sys.modules)
        about = device.cpu_device()
        if self.gpu:
            torch: Any = sys.modules["torch"]
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            about = {
                "kind": "cuda",
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "facts": self.gpu.facts(),
            }
            blocked = timing.stream_clock()
            found |= {
                "driver": self.gpu.driver(),
                "cuda": str(torch.version.cuda),
                "clock": f"probe {blocked.version}" if blocked else "events",
            }
        return {
            "worker": self.script.target.name,
            "versions": found,
            "device": about,
            "variants": [],
            "lists": True,
        }

    def calls(self) -> list[Message]:
        """All calls of the script, which has ended."""
        script = self.script
        if script.raised:
            count = len(script.calls)
            after = f" (after {count} {'call' if count == 1 else 'calls'} of timers)"
            after += "; have it end without failing"
            raise Failed(script.ended + ("" if script.declares else after))
        return script.calls

    def prepare(self, request: Message) -> Message:
        """The first call of the case that the script is stopped in."""
        script = self.script
        if script.call is None:
            raise Unavailable(script.not_reached(wanted(request)))
        case = script.call
        try:
            returned, about = case.begin()
        except Failed:
            raise
        except Exception as error:
            if self._no_memory(error):
                raise Unavailable(f"out of memory: {error}") from error
            traceback.print_exc()
            where = case.place.where
            raised = places.raised_at(error, script.path).removeprefix(f"{where}: ")
            raise Failed(f"{where}: the call raised {raised}") from error
        found = outputs(returned)
        return {"effective": {}, "probes": {}, "outputs": found} | about

    def _no_memory(self, error: Exception) -> bool:
        torch: Any = sys.modules.get("torch")
        return isinstance(error, MemoryError) or (
            torch is not None and isinstance(error, torch.OutOfMemoryError)
        )

    def _case(self) -> ScriptCase:
        if self.script.call is None:
            raise Failed("no case is prepared")
        return self.script.call

    def measure(self, request: Message) -> Message:
        return self._case().measure(timing.Plan.from_wire(request), self.gpu)

    def call(self) -> Any:
        """One call of the prepared case."""
        return self._case().again()

    def census(self) -> Message:
        """The structure of one call."""
        found: Message = {"launches": [], "counts": {}}
        uncounted: dict[str, str] = {}
        case = self._case()
        if self.gpu:
            torch: Any = sys.modules["torch"]
            from regatta_worker.on_torch.library import allocations, copies

            try:
                ranges = functools.partial(torch.autograd.profiler.emit_nvtx, record_shapes=False)
                found = launches.profile_call(self.call, case.wait, ranges)
                found["counts"]["copies"] += sum(map(copies, found["launches"]))
            except (launches.CensusError, OSError) as error:
                traceback.print_exc()
                uncounted["census"] = f"the census failed: {error}"
            if not case.timed.graph:
                found["counts"] |= allocations(self.call)
        else:
            found["counts"] |= functions.count_memory(self.call)
        if "torch" in sys.modules and not case.timed.graph:
            operators, why = functions.count_operators(self.call)
            found |= {"operators": operators} if operators else {}
            uncounted |= why
        return found | ({"uncounted": uncounted} if uncounted else {})

    def recorded(self) -> list[Message]:
        """Calls recorded as the last samples were taken."""
        case = self._case()
        if self.gpu is None or case.timed.graph:
            return []
        from regatta_worker.on_torch.library import recorded_samples

        try:
            return recorded_samples(case.plan, self.call)
        except (launches.CensusError, OSError):
            traceback.print_exc()
            return []

    def release(self) -> None:
        """Releases the results of the last calls; the script continues with the next `prepare`."""
        gc.collect()


def serve_script(target: Target, requests: BinaryIO, replies: BinaryIO) -> None:
    """Runs a script, and answers requests about its calls."""

    def session(script: Script) -> Session:
        return Session(lambda: ScriptWorker(script), target.name)

    Script(target, session, requests, replies).run()
