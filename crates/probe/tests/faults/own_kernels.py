"""Four CUDA kernels, each slow in another way where its change says so."""

from collections.abc import Callable

import torch

SOURCE = """
extern "C" __global__ void transpose(const float* in, float* out, int n) {
  __shared__ float tile[32][ROW];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void chase(const int* next, int* out, int n, int hops) {
  __shared__ int seen[SHARED];
  int at = (blockIdx.x * blockDim.x + threadIdx.x) % n;
  for (int hop = 0; hop < hops; ++hop) {
    at = next[at];
    seen[(threadIdx.x + hop * 32) % SHARED] = at;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = at + seen[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) mix(const float* in, float* out, int n) {
  int at = blockIdx.x * 256 + threadIdx.x;
  float x[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = in[(at + i * 4096) % n];
  for (int round = 0; round < 20; ++round) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] * x[(i + 7) % 64] + x[(i + 31) % 64];
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += x[i];
  out[at] = sum;
}

extern "C" __global__ void scale(const float* in, float* out, int n, int apart) {
  int threads = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
    // Each word once, in another order where they are apart.
    int at = (i % (n / apart)) * apart + i / (n / apart);
    out[at] = in[at] * 2;
  }
}
"""

SIZE = 8192
HOPS, CHASERS = 64, 132 * 2048


def build(change: str) -> Callable[[int], None]:
    torch.manual_seed(0)
    macros = {
        "ROW": 32 if change == "bank-conflicts" else 33,
        "SHARED": 12000 if change == "occupancy" else 256,
        "BLOCKS": 8 if change == "spills" else 1,
    }
    source = "".join(f"#define {name} {value}\n" for name, value in macros.items()) + SOURCE
    names = ("transpose", "chase", "mix", "scale")
    transpose, chase, mix, scale = (torch.cuda._compile_kernel(source, name) for name in names)
    matrix = torch.randn(SIZE, SIZE, device="cuda")
    turned = torch.empty_like(matrix)
    chain = torch.randperm(1 << 24, device="cuda", dtype=torch.int32)
    ends = torch.empty(CHASERS, device="cuda", dtype=torch.int32)
    apart = 32 if change == "strided" else 1
    blocks = 16 if change == "fewer-blocks" else 1056

    def step(_: int) -> None:
        tiles = SIZE // 32
        transpose((tiles, tiles, 1), (32, 8, 1), (matrix, turned, SIZE))
        chase((CHASERS // 32, 1, 1), (32, 1, 1), (chain, ends, chain.numel(), HOPS))
        mix((4096, 1, 1), (256, 1, 1), (matrix, turned, matrix.numel()))
        scale((blocks, 1, 1), (256, 1, 1), (matrix, turned, matrix.numel(), apart))

    return step
