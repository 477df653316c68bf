"""The inputs, against the vectors in docs/PROTOCOL.md."""

from __future__ import annotations

import numpy as np

import support
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem, probe_indices


class TestInputs:
    def test_frozen_values(self) -> None:
        first = [0.836805286714029, -1.1781049573266253, -0.7669481822728474]
        assert inputs.numpy_elements(42, "q", 0, 3).tolist() == first
        assert inputs.numpy_elements(42, "dout", 1000, 1)[0] == -1.3725259712649156

    def test_a_seed_may_use_all_64_bits(self) -> None:
        """The formula in integers of any size, cut to 64 bits, for the largest seed."""
        seed, bits = (1 << 64) - 1, (1 << 64) - 1
        z = (seed + ((1 << 40) + 5 + 1) * inputs.GOLDEN) & bits
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & bits
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & bits
        z ^= z >> 31
        expected = (2 * ((z >> 11) / 2**53) - 1) * 3**0.5
        assert inputs.numpy_elements(seed, "k", 5, 1)[0] == expected

    def test_rounded_through_float32(self) -> None:
        problem = Problem.from_wire(support.wire())
        exact = inputs.numpy_elements(7, "v", 0, 2 * 24 * 4 * 16)
        halves = inputs.numpy_input(problem, "v", 7, np.float16)
        assert halves.shape == (2, 24, 4, 16)
        expected = exact.astype(np.float32).astype(np.float16)
        assert (halves.reshape(-1) == expected).all()

    def test_chunks_are_seamless(self) -> None:
        problem = Problem.from_wire(support.wire())
        whole = inputs.numpy_input(problem, "q", 3, np.float32)
        kept, inputs.CHUNK = inputs.CHUNK, 100
        try:
            assert (inputs.numpy_input(problem, "q", 3, np.float32) == whole).all()
        finally:
            inputs.CHUNK = kept

    def test_probes_stay_inside(self) -> None:
        assert probe_indices(5)[-1] == 4
        assert max(probe_indices(1)) == 0
        assert probe_indices(32) == list(range(1, 32, 2))
