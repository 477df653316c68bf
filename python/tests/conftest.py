"""No test sees a GPU, in this process or in a worker that it starts."""

import os

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
