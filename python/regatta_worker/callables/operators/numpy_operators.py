"""Declared operators on NumPy arrays, run on the host and timed by its clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from regatta_worker.callables.load import Guarded
from regatta_worker.callables.numpy_functions import OnNumpy
from regatta_worker.callables.operators.case import OperatorCase, OperatorWorker
from regatta_worker.callables.operators.operands import InputTensor, on_host
from regatta_worker.protocol.channel import Failed, Unsupported

DTYPES: Mapping[str, Any] = {
    "f32": np.float32,
    "f16": np.float16,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "bool": np.bool_,
}


class NumpyOperators(Guarded, OnNumpy[OperatorCase], OperatorWorker):
    """Functions of NumPy arrays."""

    DTYPES = DTYPES

    def array(self, tensor: InputTensor, seed: int) -> np.ndarray:
        if tensor.dtype not in DTYPES:
            raise Unsupported(f"NumPy has no {tensor.dtype}, which input {tensor.name} is")
        return tensor.drawn(seed).astype(DTYPES[tensor.dtype])

    def replaced(self, given: np.ndarray, source: np.ndarray, rows: int) -> np.ndarray:
        if rows == 0:
            given[...] = source
        else:
            given[rows:], given[:rows] = source[:-rows], source[-rows:]
        return given

    def host(self, value: Any) -> np.ndarray:
        return on_host(np.asarray(value))

    def check_type(self, case: OperatorCase, name: str, value: Any, dtype: str) -> None:
        kind = type(value)
        if kind is not np.ndarray and not isinstance(value, np.generic):
            raise Failed(
                f"{case.where} returned {name} as {kind.__name__}; return a plain NumPy array"
            )
        if dtype not in DTYPES:
            raise Unsupported(f"NumPy has no {dtype}")
        super().check_type(case, name, value, dtype)

    def same(self, given: np.ndarray, drawn: np.ndarray) -> bool:
        return bool(np.array_equal(given, drawn))


WORKER = NumpyOperators
