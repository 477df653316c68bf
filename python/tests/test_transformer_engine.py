"""TransformerEngine: what its modules are given, and what is ruled out.

Its values and how often it selects a backend are checked where it runs: by every
`regatta run backend-selection` on a GPU.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

import support

pytest.importorskip("torch")

from regatta_worker.libraries import transformer_engine as te
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

RAGGED = {"q": [3, 24], "k": [3, 24]}


def window(left: int | None, right: int | None, align: str = "top-left") -> dict[str, Any]:
    return {"left": left, "right": right, "align": align}


def problem(**axes: Any) -> Problem:
    return Problem.from_wire(support.wire(**axes))


@pytest.mark.parametrize(
    ("axes", "given"),
    [
        ({}, ("no_mask", (-1, -1), None)),
        ({"mask": support.CAUSAL}, ("causal", (-1, 0), None)),
        ({"mask": support.CAUSAL, "seq_k": 30}, ("causal", (-1, 0), None)),
        ({"mask": support.CAUSAL_BR}, ("causal", (-1, 0), None)),
        ({"mask": support.CAUSAL_BR, "seq_k": 30}, ("causal_bottom_right", (-1, 0), None)),
        ({"mask": window(5, 0)}, ("causal", (5, 0), None)),
        ({"mask": window(5, 3)}, ("no_mask", (5, 3), None)),
        ({"mask": window(5, 3), "seq_k": 30}, ("no_mask", (5, 3), False)),
        ({"mask": window(5, 3, "bottom-right"), "seq_k": 30}, ("no_mask", (5, 3), True)),
        # An unbounded side is as wide as the longer sequence.
        ({"mask": window(None, 3), "seq_k": 30}, ("no_mask", (30, 3), False)),
        ({"mask": window(5, None), "seq_k": 30}, ("no_mask", (5, 30), False)),
        ({"varlen": RAGGED}, ("padding", (-1, -1), None)),
        ({"varlen": RAGGED, "mask": support.CAUSAL}, ("padding_causal", (-1, 0), None)),
    ],
)
def test_masks(axes: dict[str, Any], given: tuple[Any, ...]) -> None:
    found = te.mask_arguments(problem(**axes), windowed=False)
    names = ("attn_mask_type", "window_size", "bottom_right_diagonal")
    assert tuple(found.get(name) for name in names) == given
    assert found["qkv_format"] == ("thd" if "varlen" in axes else "bshd")
    assert found["attention_type"] == ("cross" if "seq_k" in axes else "self")


def test_a_windowed_layer_differs_in_its_window_alone() -> None:
    causal = problem(mask=support.CAUSAL, varlen=RAGGED)
    plain, windowed = (te.mask_arguments(causal, each) for each in (False, True))
    assert windowed == plain | {"window_size": (256, 0)}


@pytest.mark.parametrize(
    ("axes", "layers", "alternate", "words"),
    [
        ({"layout": "bhsd"}, 1, False, "takes bshd, sbhd and thd"),
        ({"mask": support.CAUSAL}, 1, True, "two or more"),
        ({}, 2, True, "causal mask"),
        ({"mask": window(5, 3)}, 2, True, "causal mask"),
    ],
)
def test_what_it_does_not_do(
    axes: dict[str, Any], layers: int, alternate: bool, words: str
) -> None:
    with pytest.raises(Unsupported, match=words):
        te._refuse(problem(**axes), layers, alternate)


def test_one_backend_is_left_to_choose_from_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTE_FUSED_ATTN", "1")
    monkeypatch.delenv("NVTE_FLASH_ATTN", raising=False)
    with te._environment("flash"):
        chosen = {name: os.environ[variable] for name, variable in te.BACKENDS.items()}
    assert chosen == {"fused": "0", "flash": "1", "unfused": "0"}
    assert os.environ["NVTE_FUSED_ATTN"] == "1"
    assert "NVTE_FLASH_ATTN" not in os.environ
