"""Facts of the device, of which the Rust worker gives the same for a CPU."""

import re
from pathlib import Path
from typing import Any

import pytest

from regatta_worker import device


def test_a_cpu_has_the_facts_of_the_rust_worker() -> None:
    found = device.cpu_device()
    assert list(found["facts"]) == ["cores"], "facts enter the fingerprint"
    memory = {
        name: int(kibibytes) << 10
        for name, kibibytes in re.findall(
            r"(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.M
        )
    }
    # Other processes take little meanwhile beside the system's memory.
    assert found["memory_bytes"] == pytest.approx(memory["MemAvailable"], rel=0.2)
    assert found["memory_bytes"] < memory["MemTotal"]


def test_cold_is_colder_than_all_last_level_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two chips of two cores: each core has an L2 of its own, each chip an L3.
    for cpu in range(4):
        for index, level, shared, size in ((0, 2, f"{cpu}", "1024K"), (1, 3, f"{cpu // 2}", "32M")):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("shared_cpu_list", shared), ("size", size)):
                (folder / name).write_text(f"{text}\n")
    assert device.last_level_cache_bytes(tmp_path) == 64 << 20
    assert device.last_level_cache_bytes(tmp_path / "cpu0") is None
    for cache, flushed in ((64 << 20, 80 << 20), (None, 80 << 20), (2 << 30, 1 << 30)):
        monkeypatch.setattr(device, "last_level_cache_bytes", lambda cache=cache: cache)
        assert device.cpu_flush_bytes() == flushed


@pytest.mark.parametrize(("listed", "others"), [(0, None), (1, 0), (3, 2)])
def test_where_nvml_lists_not_even_this_process_others_are_unknown(
    listed: int, others: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(gpu: device.NvidiaDevice, functions: device.Names, *arguments: Any) -> int:
        if functions == device.RUNNING_PROCESSES:
            arguments[0]._obj.value = listed
        return device.NVML_SUCCESS

    monkeypatch.setattr(device.NvidiaDevice, "_nvml_status", status)
    assert device.NvidiaDevice().state().get("other_processes") == others


@pytest.mark.parametrize(("version", "others"), [("_v3", 2), ("_v2", 2), ("", None)])
def test_an_older_driver_is_asked_by_the_older_name(
    version: str, others: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        """NVML of a driver that has one version of a function; ctypes raises as Python does."""

    def processes(handle: Any, count: Any, infos: Any) -> int:
        count._obj.value = 3
        return device.NVML_ERROR_INSUFFICIENT_SIZE

    setattr(Library, f"nvmlDeviceGetComputeRunningProcesses{version}", staticmethod(processes))
    gpu = device.NvidiaDevice()
    monkeypatch.setattr(gpu, "_nvml", Library())
    monkeypatch.setattr(gpu, "_handle", 1)
    assert gpu.state().get("other_processes") == others
