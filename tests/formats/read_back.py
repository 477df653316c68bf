"""Reads what `regatta report` writes for other tools by what reads it there.

    regatta report RUN --openmetrics F/metrics.txt --asv F/asv --bencher F/bencher.json \
        --benchmark-action F/action.json --google-benchmark F/google.json
    compare.py --dump_to_json F/compared.json benchmarks F/google.json F/google.json
    python tests/formats/read_back.py F

OpenMetrics is read by Prometheus' own parser, results by airspeed velocity, and Google Benchmark's
file by its `compare.py` (Debian has it as libbenchmark-tools), whose answer is read here. The
readers of Bencher and of github-action-benchmark are in no package: the fields of theirs are held
to what is documented.
"""

import glob
import json
import math
import os
import sys

import asv.results
import asv.util
from prometheus_client.openmetrics.parser import text_string_to_metric_families


def number(value):
    assert isinstance(value, (int, float)) and math.isfinite(value) and value > 0, value
    return value


def main(folder):
    def path(name):
        return os.path.join(folder, name)

    def read(name):
        with open(path(name), encoding="utf-8") as file:
            return json.load(file)

    with open(path("metrics.txt"), encoding="utf-8") as file:
        families = {f.name: f for f in text_string_to_metric_families(file.read())}
    times = {
        s.labels["case"]: s.value for s in families["regatta_case_seconds"].samples
    }
    assert families["regatta_case_seconds"].unit == "seconds"
    assert families["regatta_exit_code"].samples[0].value in (0, 1, 3)
    assert times

    bencher = read("bencher.json")
    assert bencher.keys() == times.keys()
    for case, measures in bencher.items():
        latency = measures["latency"]
        assert (
            latency["lower_value"] <= number(latency["value"]) <= latency["upper_value"]
        )
        assert math.isclose(latency["value"] / 1e9, times[case], rel_tol=1e-9), case

    action = read("action.json")
    assert [one["name"] for one in action] == list(times)
    assert all(one["unit"] == "ns" and number(one["value"]) for one in action)

    google = read("google.json")
    assert google["context"]["date"]
    for one in google["benchmarks"]:
        assert one["run_type"] == "iteration" and one["time_unit"] == "ns"
        assert one["repetition_index"] < one["repetitions"]
        number(one["real_time"]), number(one["cpu_time"])
    assert {one["name"] for one in google["benchmarks"]} == times.keys()

    # A file against itself: every case, each invocation a repetition, and nothing moved.
    compared = {one["name"]: one for one in read("compared.json")}
    overall = compared.pop("OVERALL_GEOMEAN")["measurements"][0]
    assert compared.keys() == times.keys(), compared.keys() ^ times.keys()
    assert overall["time"] == 0
    for case, one in compared.items():
        real = [measured["real_time"] for measured in one["measurements"]]
        assert one["time_unit"] == "ns" and min(real) <= times[case] * 1e9 * (1 + 1e-9)
        assert times[case] * 1e9 <= max(real) * (1 + 1e-9), case
        assert all(measured["time"] == 0 for measured in one["measurements"]), case
        if len(real) > 1:
            assert one["utest"]["time_pvalue"] == 1, case

    (results,) = glob.glob(path("asv/*/*-regatta.json"))
    loaded = asv.results.Results.load(
        results, os.path.basename(os.path.dirname(results))
    )
    keys = sorted(loaded.get_all_result_keys())
    assert len(keys) == len(times), keys
    for key in keys:
        (seconds,) = loaded.get_result_value(key, [])
        (samples,) = loaded.get_result_samples(key, [])
        assert min(samples) <= seconds <= max(samples), key
        assert math.isclose(seconds, times[key.split(".", 1)[1]], rel_tol=1e-9), key
    benchmarks = asv.util.load_json(path("asv/benchmarks.json"), 2)
    assert set(keys) <= benchmarks.keys()
    print(f"{len(times)} cases read back from five formats")


if __name__ == "__main__":
    main(sys.argv[1])
