"""Every library's variants with sets of inputs, over the protocol, on a machine with a GPU.

A script, and no test:

    python3 sets_on_gpu.py [--library torch ...] [--probe libregatta_probe.so]

prints one line for each case: the errors of the first call and those of the last timed one, or
why there are none. Libraries that are not installed are skipped in a line. Exit code 1 says
that a case failed, was not checked, or was off by more than its type allows.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import support

LIBRARIES = (
    "torch", "triton", "flash_attn", "xformers", "flashinfer", "cudnn", "transformer_engine",
    "te_model", "jax", "sequence_parallel",
)  # fmt: skip
TOLERANCE = {"f32": 1e-3, "f16": 1e-2, "bf16": 5e-2}
"""Of relative L2, for TF32 products too: stale results are off by more than 1."""

BASE: dict[str, Any] = {"batch": 2, "heads": 16, "seq_q": 1024, "head_dim": 64, "dtype": "bf16"}
LARGE: dict[str, Any] = BASE | {"batch": 1, "seq_q": 8192, "head_dim": 128, "mask": support.CAUSAL}
RAGGED: dict[str, Any] = BASE | {
    "batch": 3,
    "seq_q": 1000,
    "seq_k": 1000,
    "varlen": {"q": [1000, 17, 512], "k": [1000, 17, 512]},
    "mask": support.CAUSAL,
}
SHAPES: dict[str, dict[str, Any]] = {
    "base": BASE,
    "bhsd,kv4,causal": BASE | {"layout": "bhsd", "kv_heads": 4, "mask": support.CAUSAL},
    "one sequence": BASE | {"batch": 1, "seq_q": 512},
    "decode": BASE | {"batch": 8, "seq_q": 1, "seq_k": 2048, "kv_heads": 4},
    "ragged": RAGGED,
    "large": LARGE,
}
PARAMS: dict[str, tuple[dict[str, Any], ...]] = {
    "torch": ({"access": "copies"},),
    "flash_attn": ({"access": "copies"},),
    "xformers": ({"access": "copies"},),
    "flashinfer": ({"plan": "each"}, {"page_size": 64}),
    "cudnn": ({"plan": "each"},),
    "transformer_engine": ({"layers": 3}, {"layers": 2, "fp8": "autocast"}),
    "te_model": ({"layers": 3},),
    "triton": ({"lengths": 3},),
    "sequence_parallel": ({"lengths": 3}, {"start": "queued"}),
}
"""Besides none at all; a variant that has no such parameter is not asked."""

WITH_PARAMS = ("base,", "decode,", "all-gather,", "reduce-scatter,")
"""How the names of the problems begin that these are asked for."""

PLAN = {"warmup": 2, "samples": 5, "min_samples": 5, "budget_ms": 0}
MEASURED = ({"cache": "cold"}, {"cache": "hot", "graph": True}, {"cache": "hot"})


def problems(variant: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of a variant, by name; each in a type that it has."""
    dtype = "bf16" if "bf16" in variant["dtypes"] else variant["dtypes"][0]
    if variant.get("projections"):
        for kind in variant["projections"]:
            for ranks in (1, 2):
                projection = {"kind": kind, "hidden": 2048, "ranks": ranks}
                axes = BASE | {"projection": projection, "dtype": dtype}
                yield f"{kind},{ranks} ranks", axes
        return
    for name, axes in SHAPES.items():
        for direction in variant["directions"]:
            yield f"{name},{direction}", axes | {"direction": direction, "dtype": dtype}


def parameters(library: str, variant: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """None at all, and those of the library that the variant has."""
    yield {}
    for params in PARAMS.get(library, ()):
        if set(params) <= set(variant["parameters"]):
            yield params


def off(errors: dict[str, Any]) -> float:
    """The largest relative error; one that is not finite is infinite."""
    figures = [error["relative_l2"] for error in errors.values()]
    return max(float("inf") if figure is None else figure for figure in figures)


def case(worker: support.StartedWorker, asked: dict[str, Any], tolerance: float) -> tuple[str, str]:
    """One case in every way to measure it: what is to be said, and `ok`, `skip` or `BAD`."""
    begin = time.monotonic()
    prepared = worker.ask("prepare", **asked, seed=support.SEED, input_sets=support.SETS)
    if prepared["type"] != "prepared":
        verdict = "skip" if prepared["type"] == "unsupported" else "BAD"
        return f"{prepared['type']}: {prepared['reason'][:110]}", verdict
    before, verdict = off(prepared["errors"]), "ok"
    said = [f"first {before:.1e}"]
    for way in MEASURED:
        name = "graph" if way.get("graph") else way["cache"]
        measured = worker.ask("measure", **PLAN, **way)
        if measured["type"] == "unsupported":
            said.append(f"{name} unsupported")
            continue
        checked = measured.get("checked")
        if measured["type"] != "measured" or not checked:
            said.append(f"{name} {measured['type']}: {measured.get('reason', 'not checked')[:110]}")
            verdict = "BAD"
            break
        after, sets = off(checked["errors"]), measured["input_sets"]
        reason = measured.get("input_sets_reason", "")
        peak = measured.get("peak_bytes", 0) / (1 << 20)
        said.append(f"{name} {after:.1e} ({sets} sets{reason and ': ' + reason}, {peak:.0f} MiB)")
        seed = support.SEED + (sets > 1)
        # `not <=`, so that NaN is bad.
        if not after <= tolerance or checked["seed"] != seed:
            verdict = "BAD"
    census = worker.ask("census")
    if census["type"] != "census":
        said.append(f"census {census['type']}: {census.get('reason', '')[:110]}")
        verdict = "BAD"
    return f"{'; '.join(said)}; {time.monotonic() - begin:.1f} s", verdict


def library(name: str, only: str) -> int:
    """Every case of a library, one line each; how many were bad."""
    worker, bad = support.StartedWorker(name), 0
    hello = worker.ask("hello", protocol=1)
    if hello["type"] != "hello" or hello.get("absent"):
        print(f"skip {name}: {str(hello.get('absent', hello.get('reason')))[:150]}", flush=True)
        return 0
    print(f"     {name}: {hello['versions']}", flush=True)
    for variant in hello["variants"]:
        for shape, axes in problems(variant):
            for params in parameters(name, variant) if shape.startswith(WITH_PARAMS) else ({},):
                words = ",".join(f"{key}={value}" for key, value in params.items())
                title = f"{name}/{variant['name']}:{shape}{words and ':' + words}"
                if only not in title:
                    continue
                asked = {"variant": variant["name"], "params": params}
                asked["problem"] = support.wire(**axes)
                said, verdict = case(worker, asked, TOLERANCE[axes["dtype"]])
                bad += verdict == "BAD"
                print(f"{verdict:4} {title}: {said}", flush=True)
    worker.ask("shutdown")
    if (status := worker.exit_status()) != 0 or bad:
        print(f"     {name} ended with {status}; the end of its log:")
        print(worker.log.decode(errors="replace")[-3000:], flush=True)
    return bad + (status != 0)


def main() -> None:
    """Runs all, or what was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", action="append", choices=LIBRARIES, help="some alone")
    parser.add_argument("--probe", help="the GPU clock's library; without it, plain events")
    parser.add_argument("--only", default="", help="cases whose line contains this")
    asked = parser.parse_args()
    # FlashInfer compiles its kernels in `prepare`.
    support.REPLY_LIMIT_S = 900
    if asked.probe:
        os.environ["REGATTA_PROBE"] = asked.probe
    bad = sum(library(name, asked.only) for name in asked.library or LIBRARIES)
    print(f"{bad} bad")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
