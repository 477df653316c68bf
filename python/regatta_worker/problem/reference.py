"""The float64 reference and how far a result is from it.

The same few lines run on numpy (on the host, for jax) and on torch (on the
device). References are kept for the cases that follow: beside the inputs on a
device with memory to spare, so that no comparison moves them, or else on the host.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import GRADIENTS, Problem, Sequence
from regatta_worker.problem.inputs import names
from regatta_worker.problem.numbers import probe_indices
from regatta_worker.problem.planes import Plane, Planes, alike, apart, problem_of

CHUNK = 1 << 22
"""Elements compared at a time."""

ZERO = 1e-12
"""A root mean square below which a float64 result is zero in exact arithmetic."""

Make = Callable[[str, Planes], Any]
"""Alike planes' parts of an input, `[1, rows, heads, width]`, in the problem's type."""


def _rows(tensor: Any, index: int, start: int, first: int, last: int) -> Any:
    """Rows `first .. last` of sequence `index`, which starts at packed row `start`."""
    return tensor[start + first : start + last] if tensor.ndim == 3 else tensor[index, first:last]


class _Reference:
    """Computes one problem piece by piece: a few key-value heads of one sequence at a time."""

    def __init__(
        self, arrays: Arrays, problem: Problem, inputs: dict[str, Any], gradients: bool
    ) -> None:
        self.arrays, self.problem, self.inputs = arrays, problem, inputs
        self.group = problem.heads // problem.kv_heads
        self.gradients = gradients
        # Packed [rows, heads, width]: in memory the same as the logical order.
        self.results = {
            name: arrays.kept_zeros((math.prod(shape[:-2]), *shape[-2:]))
            for name in (("out", *GRADIENTS) if gradients else ("out",))
            for shape in (problem.shape(name),)
        }

    def compute(self) -> dict[str, Any]:
        """Every piece; pieces write to disjoint parts of the results, so threads may share them."""
        limit, pieces = self.arrays.score_elements, []
        for index, sequence in enumerate(self.problem.sequences):
            at_once = max(1, limit // (self.group * sequence.seq_q * sequence.seq_k))
            at_once = 1 if self.arrays.threads > 1 else min(at_once, self.problem.kv_heads)
            for kv in range(0, self.problem.kv_heads, at_once):
                pieces.append((index, sequence, kv, min(kv + at_once, self.problem.kv_heads)))
        if self.arrays.threads == 1:
            for piece in pieces:
                self._piece(*piece)
            return self.results
        with ThreadPoolExecutor(self.arrays.threads) as pool:
            for _ in pool.map(lambda piece: self._piece(*piece), pieces):
                pass
        return self.results

    def _piece(self, index: int, sequence: Sequence, kv_first: int, kv_last: int) -> None:
        """Key-value heads `kv_first .. kv_last` of one sequence, query rows in chunks."""
        float64, kv = self.arrays.float64, slice(kv_first, kv_last)
        keys = (index, sequence.k_start, 0, sequence.seq_k)
        k = float64(_rows(self.inputs["k"], *keys)[:, kv]).swapaxes(0, 1)
        v = float64(_rows(self.inputs["v"], *keys)[:, kv]).swapaxes(0, 1)
        dk, dv = self.arrays.zeros(tuple(k.shape)), self.arrays.zeros(tuple(v.shape))
        of_row = (kv_last - kv_first) * self.group * sequence.seq_k
        rows = max(1, min(sequence.seq_q, self.arrays.score_elements // of_row))
        for first in range(0, sequence.seq_q, rows):
            last = min(first + rows, sequence.seq_q)
            self._query_rows(index, sequence, kv, (first, last), (k, v), (dk, dv))
        if self.gradients:
            own = slice(sequence.k_start, sequence.k_start + sequence.seq_k)
            self.results["dk"][own, kv] = self.arrays.to_kept(dk.swapaxes(0, 1))
            self.results["dv"][own, kv] = self.arrays.to_kept(dv.swapaxes(0, 1))

    def _query_rows(
        self,
        index: int,
        sequence: Sequence,
        kv: slice,
        rows: tuple[int, int],
        key_value: tuple[Any, Any],
        gradients: tuple[Any, Any],
    ) -> None:
        """Query rows `rows` of all heads that read key-value heads `kv`; adds to dk and dv.

        The query heads that share a key-value head are stacked as if they were more
        rows: then GQA needs no copies, and dk and dv sum over the heads by themselves.
        """
        xp, problem, (first, last) = self.arrays.xp, self.problem, rows
        seen = self._seen_keys(sequence, rows)
        if seen.start >= seen.stop:
            return  # No row sees a key: output and gradients stay 0.
        k, v = key_value[0][:, seen], key_value[1][:, seen]
        heads = slice(kv.start * self.group, kv.stop * self.group)
        stacked = (kv.stop - kv.start, self.group * (last - first), -1)
        own = slice(sequence.q_start + first, sequence.q_start + last)
        scale = 1.0 / math.sqrt(problem.head_dim)

        def stack(name: str) -> Any:
            part = _rows(self.inputs[name], index, sequence.q_start, first, last)[:, heads]
            return self.arrays.float64(part).swapaxes(0, 1).reshape(stacked)

        def store(name: str, value: Any) -> None:
            flat = value.reshape((heads.stop - heads.start, last - first, -1)).swapaxes(0, 1)
            self.results[name][own, heads] = self.arrays.to_kept(flat)

        q = stack("q")
        scores = q @ k.swapaxes(1, 2) * scale
        if not problem.mask.is_full:
            visible = problem.mask.visible(
                self.arrays.positions(first, last)[:, None],
                self.arrays.positions(seen.start, seen.stop)[None, :],
                problem.mask.offset(sequence.seq_q, sequence.seq_k),
            )
            by_row = scores.reshape((-1, *visible.shape))
            scores = xp.where(visible, by_row, -math.inf).reshape(scores.shape)
        top = xp.amax(scores, axis=-1, keepdims=True)
        p = xp.exp(scores - xp.where(top == -math.inf, 0.0, top))
        total = p.sum(axis=-1, keepdims=True)
        p = p / xp.where(total == 0.0, 1.0, total)
        out = p @ v
        store("out", out)
        if self.gradients:
            dout = stack("dout")
            delta = (dout * out).sum(axis=-1, keepdims=True)
            ds = p * (dout @ v.swapaxes(1, 2) - delta) * scale
            store("dq", ds @ k)
            gradients[0][:, seen] += ds.swapaxes(1, 2) @ q
            gradients[1][:, seen] += p.swapaxes(1, 2) @ dout

    def _seen_keys(self, sequence: Sequence, rows: tuple[int, int]) -> slice:
        """The keys that at least one of these rows may see."""
        mask = self.problem.mask
        offset = mask.offset(sequence.seq_q, sequence.seq_k)
        first = 0 if mask.left is None else max(0, rows[0] + offset - mask.left)
        end = sequence.seq_k
        if mask.right is not None:
            end = min(end, rows[1] + offset + mask.right)
        return slice(first, max(end, 0))


def reference(arrays: Arrays, problem: Problem, inputs: dict[str, Any]) -> dict[str, Any]:
    """`out`, and with gradients `dq`, `dk`, `dv`, packed `[rows, heads, width]`."""
    return _Reference(arrays, problem, inputs, problem.has_backward).compute()


SHARE_OF_HOST = 16
"""References may take at most 1/`SHARE_OF_HOST` of the host's memory."""

Kept = OrderedDict[Hashable, dict[str, Any]]


class ReferenceCache:
    """References of the last problems: several variants run on the same one in one process.

    One is known by the problem without its layout and direction, which change no values, and
    by the seed of its inputs. In float64 it holds `out`, and with gradients `dq`, `dk` and `dv`.
    The longest unused go first; the last one stays, however large.
    """

    def __init__(self, arrays: Arrays, near_bytes: int = 0) -> None:
        """They lie as computed in `near_bytes` of a device's memory where they fit, or else on the
        host, in a sixteenth of its memory."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._near = arrays.kept_there(), near_bytes, Kept()
        self._host = arrays, memory // SHARE_OF_HOST, Kept()

    @property
    def near_bytes(self) -> int:
        """The device memory that they take."""
        return _bytes(self._near[2])

    def clear(self) -> bool:
        """Drops all; returns False if there were none."""
        there = bool(self._near[2] or self._host[2])
        self._near[2].clear()
        self._host[2].clear()
        return there

    def whole(
        self, problem: Problem, seed: int, inputs: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The reference of a problem, only to be read; `inputs` makes the inputs of this seed."""
        names = ("out", *GRADIENTS) if problem.has_backward else ("out",)
        size = 8 * sum(math.prod(problem.shape(name)) for name in names)
        arrays, limit, kept = self._near if size <= self._near[1] // 2 else self._host
        key = replace(problem, layout="bshd", direction="both"), seed
        found = kept.pop(key, {})
        if not found.keys() >= set(names):
            # The present ones make room first: both need not fit at a time.
            found = {}
            while kept and _bytes(kept) > max(0, limit - size):
                kept.popitem(last=False)
            found = reference(arrays, problem, inputs())
        kept[key] = found
        return found


def _bytes(kept: Kept) -> int:
    return sum(int(value.nbytes) for found in kept.values() for value in found.values())


def reference_of_planes(
    arrays: Arrays, problem: Problem, planes: Planes, make: Make
) -> dict[Plane, dict[str, Any]]:
    """The reference of these planes alone, from inputs that are made for them.

    So what is compared with it does not depend on what lies in the inputs that were used. They
    stay where they are computed, and are compared there.
    """
    found: dict[Plane, dict[str, Any]] = {plane: {} for plane in planes}
    for some in alike(planes):
        inputs = {name: make(name, some) for name in names(problem)}
        exact = reference(arrays.kept_there(), problem_of(some, problem), inputs)
        for name, joined in exact.items():
            for plane, value in apart(some, name, joined):
                found[plane][name] = value
    return found


Pair = tuple[Any, Any]
"""A result and the exact values, with the same elements in the same order."""


def difference(arrays: Arrays, *pairs: Pair) -> dict[str, float]:
    """`relative_l2` and `max_abs` over pairs; not finite where an element of a result is not."""
    return differences(arrays, pairs)[0]


def differences(arrays: Arrays, *groups: Iterable[Pair]) -> list[dict[str, float]]:
    """The `difference` over the pairs of each group."""
    sums, sizes = [list[Any]() for _ in groups], [0 for _ in groups]
    by_kind: dict[tuple[Any, ...], list[tuple[int, Any, Any]]] = {}
    for group, pairs in enumerate(groups):
        for result, exact in pairs:
            flat, exact_flat = result.reshape(-1), exact.reshape(-1)
            count = math.prod(flat.shape)
            sizes[group] += count
            for first in range(0, count, CHUNK):
                parts = flat[first : first + CHUNK], exact_flat[first : first + CHUNK]
                kinds = ((x.dtype, getattr(x, "device", None)) for x in parts)
                kind = (math.prod(parts[0].shape), *kinds)
                by_kind.setdefault(kind, []).append((group, *parts))
    # Parts of one kind at once, as operations on a GPU take longer to launch than to run; and all
    # figures at once, as a device is waited for.
    xp, places, figures = arrays.xp, list[int](), list[Any]()
    for (count, *_), some in by_kind.items():
        at_once = max(1, CHUNK // count)
        for first in range(0, len(some), at_once):
            numbers, flats, exacts = zip(*some[first : first + at_once], strict=True)
            expected = arrays.float64(xp.stack(exacts))
            off = arrays.float64(xp.stack(flats)) - expected
            squares = (off * off).sum(1), (expected * expected).sum(1)
            figures.append(xp.stack((*squares, xp.amax(abs(off), 1))))
            places.extend(numbers)
    columns = zip(*xp.hstack(figures).tolist(), strict=True) if figures else ()
    for group, column in zip(places, columns, strict=False):
        sums[group].append(column)
    return [_difference(of_group, size) for of_group, size in zip(sums, sizes, strict=True)]


def _difference(figures: list[tuple[float, float, float]], size: int) -> dict[str, float]:
    """The difference over `size` elements, from the figures of their parts."""
    squares, norm, largest = 0.0, 0.0, 0.0
    for square, exact_square, worst_here in figures:
        squares, norm = squares + square, norm + exact_square
        # Written so that NaN, which is neither smaller nor larger, is kept.
        largest = largest if worst_here <= largest else worst_here
    if norm < size * ZERO**2:
        # Zero in exact arithmetic, such as dq where each query sees one key: a ratio to
        # rounding noise says nothing, so the result's own size stands for it.
        norm = size
    return {"relative_l2": math.sqrt(squares / norm) if size else 0.0, "max_abs": largest}


def worst(*errors: dict[str, float]) -> dict[str, float]:
    """The largest of some errors, which one that is not finite is: None on the wire."""

    def size(error: dict[str, float]) -> float:
        found = error["relative_l2"]
        return math.inf if found is None or math.isnan(found) else found

    return max(errors, key=size)


def not_finite(arrays: Arrays, named: dict[str, Any]) -> list[str]:
    """The names of results that have an element that is not finite."""
    # A value that is not finite stays so in a sum, and a right sum does not come near float32's
    # limit; and a sum takes no memory.
    sums = [result.sum(dtype=arrays.xp.float32) for result in named.values()]
    totals = arrays.xp.stack(sums).tolist()
    return [name for name, total in zip(named, totals, strict=True) if not math.isfinite(total)]


def spot_checks(result: Any, draw: int | None = None) -> list[float]:
    """The 16 elements that the harness checks (`probes`), read without copying a strided tensor."""
    shape, found = tuple(result.shape), []
    for index in probe_indices(math.prod(shape), draw):
        place = []
        for extent in reversed(shape):
            index, inner = divmod(index, extent)
            place.append(inner)
        found.append(tuple(reversed(place)))
    # All at once: a device is waited for once.
    places = tuple(list(axis) for axis in zip(*found, strict=True))
    return [float(value) for value in result[places].tolist()]
