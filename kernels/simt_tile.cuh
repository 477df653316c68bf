// Float32 tile products out of shared memory, for the kernels that use the plain
// FFMA units: TF32 tensor cores round operands to 11 bits, which the float32
// tolerance (relative L2 of 1e-5) does not admit.
//
// Tiles lie row by row, each row padded by 16 bytes: eight neighbouring rows read
// at the same column then fall into eight different groups of four banks, so that
// 16-byte loads along the contracted axis need no transposed copy of any tile.
#pragma once

#include "problem.cuh"

namespace simt {

constexpr int TILE = 64;  // queries and keys of a tile

/// Floats from one row of a [.., head_dim] tile to the next.
template <int D>
constexpr int ROW = D + 4;
/// Floats from one row of a [queries, keys] tile to the next: 8 more than 64, so
/// that four neighbouring rows of 8 scalars written by a warp meet in no bank.
constexpr int SCORE_ROW = TILE + 8;

__device__ __forceinline__ float4 load4(const float* shared) {
    return *reinterpret_cast<const float4*>(shared);
}

/// Starts copying rows [row0, row0 + ROWS) of a plane into a padded tile; rows from
/// `rows` on and columns from `columns` on become zero.
template <int D, int THREADS, int ROWS = TILE>
__device__ __forceinline__ void load_tile(float* tile, const float* plane, long long stride,
                                          int row0, int rows, int columns) {
    constexpr int CHUNKS = D / 4;
    constexpr int STEP = THREADS / CHUNKS;
    static_assert(THREADS % CHUNKS == 0 && ROWS % STEP == 0, "whole chunks a thread");
    const int row = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 4;
    const unsigned to = shared_address(tile + row * ROW<D> + column);
    const float* from = plane + (row0 + row) * stride + column;
    // Rows of this thread's column that exist, from its first on.
    const int existing = column < columns ? rows - row0 - row : 0;
#pragma unroll
    for (int part = 0; part < ROWS / STEP; ++part) {
        // The address is only formed if nothing is read.
        copy_async_16(to + part * STEP * ROW<D> * 4, from, part * STEP < existing);
        from += STEP * stride;
    }
}

/// acc[r][c] += Σ_d a[r·A_STEP][d] · b[c·B_STEP][d]: both operands row by row, contracted
/// along their rows. `a` and `b` point to the thread's first row.
template <int D, int R, int C, int A_STEP, int B_STEP>
__device__ __forceinline__ void multiply_rows(float (&acc)[R][C], const float* a, const float* b) {
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
        float4 bs[C];
#pragma unroll
        for (int c = 0; c < C; ++c) bs[c] = load4(b + c * B_STEP * ROW<D> + d);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const float4 as = load4(a + r * A_STEP * ROW<D> + d);
#pragma unroll
            for (int c = 0; c < C; ++c) {
                acc[r][c] = fmaf(as.x, bs[c].x, acc[r][c]);
                acc[r][c] = fmaf(as.y, bs[c].y, acc[r][c]);
                acc[r][c] = fmaf(as.z, bs[c].z, acc[r][c]);
                acc[r][c] = fmaf(as.w, bs[c].w, acc[r][c]);
            }
        }
    }
}

__device__ __forceinline__ void axpy4(float* acc, float x, const float4& y) {
    acc[0] = fmaf(x, y.x, acc[0]);
    acc[1] = fmaf(x, y.y, acc[1]);
    acc[2] = fmaf(x, y.z, acc[2]);
    acc[3] = fmaf(x, y.w, acc[3]);
}

/// acc[r][4g+c] += Σ_j scores[r·STEP][j] · b[j][g·G_STEP + c]: a [queries, keys] tile times
/// a [keys, head_dim] tile. `scores` points to the thread's first row, `b` to its
/// first column.
template <int D, int R, int G, int STEP, int G_STEP>
__device__ __forceinline__ void multiply_scores(float (&acc)[R][4 * G], const float* scores,
                                                const float* b) {
#pragma unroll 4
    for (int j = 0; j < TILE; j += 4) {
        float4 as[R];
#pragma unroll
        for (int r = 0; r < R; ++r) as[r] = load4(scores + r * STEP * SCORE_ROW + j);
#pragma unroll
        for (int g = 0; g < G; ++g) {
            const float* from = b + j * ROW<D> + g * G_STEP;
            const float4 b0 = load4(from), b1 = load4(from + ROW<D>);
            const float4 b2 = load4(from + 2 * ROW<D>), b3 = load4(from + 3 * ROW<D>);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                axpy4(acc[r] + 4 * g, as[r].x, b0);
                axpy4(acc[r] + 4 * g, as[r].y, b1);
                axpy4(acc[r] + 4 * g, as[r].z, b2);
                axpy4(acc[r] + 4 * g, as[r].w, b3);
            }
        }
    }
}

/// acc[4h+r][4g+c] += Σ_i scores[i][32h + r] · b[i][g·G_STEP + c]: a transposed
/// [queries, keys] tile times a [queries, head_dim] tile; 8 keys a thread, in two
/// groups of 4 that lie 32 apart.
template <int D, int G, int G_STEP>
__device__ __forceinline__ void multiply_transposed(float (&acc)[8][4 * G], const float* scores,
                                                    const float* b) {
#pragma unroll 4
    for (int i = 0; i < TILE; ++i) {
        const float4 low = load4(scores + i * SCORE_ROW);
        const float4 high = load4(scores + i * SCORE_ROW + 32);
#pragma unroll
        for (int g = 0; g < G; ++g) {
            const float4 bs = load4(b + i * ROW<D> + g * G_STEP);
            axpy4(acc[0] + 4 * g, low.x, bs);
            axpy4(acc[1] + 4 * g, low.y, bs);
            axpy4(acc[2] + 4 * g, low.z, bs);
            axpy4(acc[3] + 4 * g, low.w, bs);
            axpy4(acc[4] + 4 * g, high.x, bs);
            axpy4(acc[5] + 4 * g, high.y, bs);
            axpy4(acc[6] + 4 * g, high.z, bs);
            axpy4(acc[7] + 4 * g, high.w, bs);
        }
    }
}

constexpr int PREPARE_QUERIES = 8;  // of a block, one a warp
constexpr int PREPARE_THREADS = PREPARE_QUERIES * 32;

/// delta of a block's queries, and zeros into their rows of dq, to which the gradient kernel
/// adds.
__device__ __forceinline__ void prepare_gradients(const Problem& p) {
    const int i = blockIdx.x * PREPARE_QUERIES + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int head = blockIdx.y, batch = blockIdx.z;
    if (i >= p.seq_q) return;
    const float sum = row_delta<float>(p, batch, head, i, lane);
    if (lane == 0) rows_of(p.delta, p, batch, head)[i] = sum;
    float* dq = plane<float>(p.dq, batch, head) + i * p.dq.seq;
    for (int d = lane; d < p.head_dim; d += 32) dq[d] = 0.f;
}

}  // namespace simt
