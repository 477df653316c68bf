"""Replies that need no library, and the measure loop on clocks of its own."""

import contextlib
import gc
import io
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from regatta_worker.clock import timing
from regatta_worker.protocol.channel import Failed, Unsupported
from regatta_worker.serving import (
    THRESHOLDS,
    Session,
    _installed_from,
    loaded,
    put_off_collections,
    serve,
)


class Scripted:
    """A worker that does what the variant's name says."""

    def __init__(self) -> None:
        self.released = 0

    def hello(self) -> dict[str, Any]:
        return {"worker": "scripted"}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["variant"]:
            case "refuses":
                raise Unsupported("head_dim must be a multiple of 8")
            case "breaks":
                raise RuntimeError("first line\nlast line")
            case "runs":
                return {"effective": {}}
            case "overflows":
                return {"errors": {"out": {"relative_l2": math.nan, "max_abs": math.inf}}}
        raise Failed("no such variant")

    def measure(self, request: dict[str, Any]) -> dict[str, Any]:
        timing.Plan.from_wire(request)
        return {"device_ns": [1.0]}

    def call(self) -> Any:
        return json.dumps({})

    def census(self) -> dict[str, Any]:
        return {"launches": [], "counts": {"copies": 1}}

    def release(self) -> None:
        self.released += 1


def talk(*lines: str) -> list[dict[str, Any]]:
    requests, replies = io.BytesIO("\n".join(lines).encode()), io.BytesIO()
    with contextlib.redirect_stderr(io.StringIO()):
        serve(Session(Scripted), requests, replies)
    return [json.loads(line) for line in replies.getvalue().splitlines()]


HELLO = '{"id":1,"type":"hello","protocol":1}'


class TestChannel:
    def test_functions_are_counted_beside_the_census_of_the_worker(self) -> None:
        asked = [
            {"name": "json_dumps", "functions": ["json:dumps"]},
            {"name": "gone", "functions": ["json:no_such_function"]},
        ]
        request = {"id": 2, "type": "prepare", "variant": "runs", "counters": asked}
        again = '{"id":4,"type":"prepare","variant":"runs"}'
        census = '{"id":3,"type":"census"}'
        *_, first, _, second = talk(HELLO, json.dumps(request), census, again, census)
        assert first["counts"]["copies"] == 1
        assert first["counts"]["calls.json_dumps"] == 1
        assert "calls.gone" not in first["counts"]
        assert list(first["uncounted"]) == ["calls.gone"]
        assert "json:no_such_function is not there" in first["uncounted"]["calls.gone"]
        assert second["type"] == "census"
        assert "calls.json_dumps" not in second["counts"], "of the last case"

    def test_a_failure_does_not_end_the_worker(self) -> None:
        replies = talk(
            HELLO,
            '{"id":2,"type":"prepare","variant":"refuses"}',
            '{"id":3,"type":"prepare","variant":"breaks"}',
            '{"id":4,"type":"prepare","variant":"overflows"}',
            '{"id":5,"type":"release","a field of tomorrow":1}',
            '{"id":6,"type":"shutdown"}',
            '{"id":7,"type":"release"}',
        )
        assert [reply["id"] for reply in replies] == [1, 2, 3, 4, 5, 6]
        kinds = [reply["type"] for reply in replies]
        assert kinds == ["hello", "unsupported", "failed", "prepared", "released", "bye"]
        assert replies[1]["reason"] == "head_dim must be a multiple of 8"
        assert "last line" in replies[2]["reason"]
        assert replies[3]["errors"]["out"] == {"relative_l2": None, "max_abs": None}

    @pytest.mark.parametrize("own", [None, (50, 5, 5)])
    def test_garbage_is_collected_once_a_worker_is_open(self, own: tuple[int, ...] | None) -> None:
        def open_worker() -> Scripted:
            assert gc.get_threshold()[0] == 0
            if own:
                gc.set_threshold(*own)
            return Scripted()

        try:
            put_off_collections()
            Session(open_worker).answer(HELLO.encode())
            assert gc.get_threshold() == (own or THRESHOLDS)
        finally:
            gc.set_threshold(*THRESHOLDS)

    def test_a_case_that_was_not_checked_is_dropped(self) -> None:
        worker = Scripted()
        session = Session(lambda: worker)
        session.answer(HELLO.encode())
        session.answer(b'{"id":2,"type":"prepare","variant":"overflows"}')
        assert worker.released == 0
        with contextlib.redirect_stderr(io.StringIO()):
            session.answer(b'{"id":3,"type":"prepare","variant":"breaks"}')
        assert worker.released == 1

    def test_malformed_requests_are_answered(self) -> None:
        replies = talk(
            "{", "[]", '{"type":"hello"}', HELLO, '{"id":8,"type":"dance"}', '{"id":9}',
            '{"id":10,"type":"measure","warmup":1}',
        )  # fmt: skip
        assert [reply["id"] for reply in replies] == [0, 0, 0, 1, 8, 9, 10]
        for reply in replies[:3] + replies[4:]:
            assert reply["type"] == "failed"
            assert "malformed request" in reply["reason"]
        assert "`samples`" in replies[6]["reason"]

    def test_another_protocol_is_refused_before_anything_else(self) -> None:
        wrong, early = talk('{"id":1,"type":"hello","protocol":2}', '{"id":2,"type":"census"}')
        assert wrong["type"] == "failed"
        assert "protocol 2" in wrong["reason"]
        assert "speaks 1" in wrong["reason"]
        assert "hello" in early["reason"]


class TestRounds:
    def taken(
        self, seconds_each: float, seconds_between: float = 0.0, fourth: float = 0.0, **plan: Any
    ) -> int:
        """Samples taken when each takes this long, each fourth so much longer, and changing the
        inputs so long before it."""
        now, inputs = [0.0], mock.Mock()

        def spend(seconds: float) -> None:
            now[0] += seconds

        inputs.change.side_effect = lambda last: spend(seconds_between)
        settings = {"warmup": 0, "samples": 10, "min_samples": 2, "budget_ms": 100.0, "cold": False}
        lasts = list[bool]()
        for last in timing.Plan(**(settings | plan)).rounds(inputs, lambda: now[0]):
            spend(seconds_each + fourth * (len(lasts) % 4 == 3))
            lasts.append(last)
        assert lasts == [False] * (len(lasts) - 1) + [True], "the last one alone"
        assert inputs.change.call_args_list == [mock.call(last) for last in lasts]
        return len(lasts)

    def test_samples_end_by_number_budget_or_minimum(self) -> None:
        assert self.taken(0.001) == 10
        assert self.taken(0.03) == 5, "starts at 0, 30, 60 and 90 ms, and the last"
        assert self.taken(9.0) == 2
        assert self.taken(9.0, min_samples=0) == 2, "the first is always within budget"
        assert self.taken(9.0, samples=1, min_samples=1) == 1
        assert self.taken(0.001, samples=1, min_samples=3) == 3

    def test_a_call_that_is_slow_now_and_then_does_not_end_the_budget_before_ten(self) -> None:
        assert self.taken(0.005, fourth=0.145, samples=20) == 10
        assert self.taken(0.005, fourth=0.0, samples=20) == 20
        assert self.taken(0.02, fourth=0.4, samples=20) == 5, "ten of the fastest are too long"

    def test_changing_the_inputs_is_not_of_the_budget(self) -> None:
        assert self.taken(0.001, seconds_between=9.0) == 10
        assert self.taken(0.03, seconds_between=9.0) == 5

    def test_each_call_is_waited_for_and_flushed_before(self) -> None:
        done = mock.Mock()
        plan = timing.Plan(warmup=1, samples=2, min_samples=2, budget_ms=0.0, cold=True)
        measured = timing.measure_wall(done.call, done.wait, plan, done.flush)
        steps = [name for name, *_ in done.method_calls]
        assert steps == ["call", "wait"] + ["flush", "call", "wait"] * 2
        assert len(measured["device_ns"]) == 2
        assert measured["host_ns"] == []
        assert "clock_mhz" not in measured
        with pytest.raises(Unsupported, match="graph = false"):
            timing.measure_wall(done.call, done.wait, replace(plan, graph=True), done.flush)

    def test_cpu_time_has_a_figure_for_each_sample(self) -> None:
        plan = timing.Plan(0, 3, 3, 0.0, cold=False)
        measured = timing.measure_wall(lambda: sum(range(10_000)), bool, plan, bool)
        assert len(measured["cpu_ns"]) == 3 and min(measured["cpu_ns"]) > 0
        assert len(measured["preempted"]) == 3


class TestWhatIsLoaded:
    def test_files_of_no_package_are_named_without_symlinks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "sloop_of_a_checkout.py").touch()
        (tmp_path / "link").symlink_to("src")
        monkeypatch.syspath_prepend(str(tmp_path / "link"))
        __import__("sloop_of_a_checkout")
        files = loaded()
        assert str(tmp_path.resolve() / "src" / "sloop_of_a_checkout.py") in files
        assert not [path for path in files if "regatta_worker/" in path]

    def test_an_installed_package_is_named_once_by_its_folder_or_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = tmp_path.resolve() / "lib" / "site-packages"
        (site / "yawl" / "deep").mkdir(parents=True)
        for name in ("yawl/__init__.py", "yawl/deep/__init__.py", "cutter.py"):
            (site / name).touch()
        monkeypatch.syspath_prepend(str(site))
        for name in ("yawl.deep", "cutter"):
            __import__(name)
        files = [path for path in loaded() if path.startswith(str(site))]
        assert files == [str(site / "cutter.py"), str(site / "yawl")]
        assert not [path for path in loaded() if path == os.__file__]

    def test_a_package_installed_from_a_folder_is_that_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code, site = tmp_path.resolve() / "code", tmp_path / "site-packages"
        for name, editable in (("ketch_a", "false"), ("ketch_b", "true"), ("ketch_c", "false")):
            info = site / f"{name}-1.dist-info"
            info.mkdir(parents=True)
            # From Python 3.12 on a file that is not there is of no distribution.
            (site / name).mkdir()
            (site / name / "__init__.py").touch()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
            url = f'{{"url": "file://{code}/{name}", "dir_info": {{"editable": {editable}}}}}'
            (info / "direct_url.json").write_text(url)
            (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
        # The last is imported from another folder, which precedes the installed copy.
        (tmp_path / "src" / "ketch_c").mkdir(parents=True)
        (tmp_path / "src" / "ketch_c" / "__init__.py").touch()
        for folder in (site, tmp_path / "src"):
            monkeypatch.syspath_prepend(str(folder))
        _installed_from.cache_clear()
        for name in ("ketch_a", "ketch_b", "ketch_c"):
            __import__(name)
        files = loaded()
        _installed_from.cache_clear()
        assert f"{code}/ketch_a" in files
        assert f"{code}/ketch_b" not in files
        assert f"{code}/ketch_c" not in files
