// Backward of float32 attention by key tiles, shared by flash_simt and split_key.
//
// A block owns the dK and dV of one key tile at a time, in registers, and walks over
// all queries that see it, for every query head of the group; dQ rows gather by
// atomic adds of 16 bytes from all key tiles (Dao, FlashAttention-2, arXiv:2307.08691,
// section 3.1; PyTorch's and xFormers' CUTLASS kernel, which splits keys over
// gridDim.x the same way). Scores are recomputed from lse, never stored.
//
// Which key tiles a block takes is the only thing that num_splits_key changes: block x
// of n walks tiles x, x + n, ... With n = 1 the whole key axis is one block's work.
#pragma once

#include "simt_tile.cuh"

namespace simt {

template <int D>
struct Backward {
    static constexpr int THREADS = D == 32 ? 128 : 256;
    static constexpr int BLOCKS = D == 128 ? 1 : 2;  // that fit on one SM
    /// Threads of the score products: 16 along keys, the rest along queries.
    static constexpr int QUERY_THREADS = THREADS / 16;
    static constexpr int QUERIES = TILE / QUERY_THREADS, KEYS = 4;  // a thread's share
    /// dQ: as many threads along head_dim as 4-wide groups, 16 at most.
    static constexpr int D_THREADS = D == 32 ? 8 : 16;
    static constexpr int D_GROUPS = D / (4 * D_THREADS);
    static constexpr int DQ_STEP = THREADS / D_THREADS, DQ_ROWS = TILE / DQ_STEP;

    static constexpr int TENSOR_FLOATS = TILE * ROW<D>, SCORE_FLOATS = TILE * SCORE_ROW;
    static constexpr int SHARED_BYTES = 4 * (4 * TENSOR_FLOATS + 2 * SCORE_FLOATS + 2 * TILE);

    float *k, *v, *q, *dout, *probabilities, *score_grads, *lse, *delta;

    __device__ __forceinline__ explicit Backward(float* shared) {
        k = shared;
        v = k + TENSOR_FLOATS;
        q = v + TENSOR_FLOATS;
        dout = q + TENSOR_FLOATS;
        probabilities = dout + TENSOR_FLOATS;
        score_grads = probabilities + SCORE_FLOATS;
        lse = score_grads + SCORE_FLOATS;
        delta = lse + TILE;
    }

    __device__ __forceinline__ void load_queries(const Problem& p, int batch, int head, int i0) {
        load_tile<D, THREADS>(q, plane<float>(p.q, batch, head), p.q.seq, i0, p.seq_q, p.head_dim);
        load_tile<D, THREADS>(dout, plane<float>(p.dout, batch, head), p.dout.seq, i0, p.seq_q,
                              p.head_dim_v);
        const int row = threadIdx.x % TILE;
        const bool inside = i0 + row < p.seq_q;
        const float* from = rows_of(threadIdx.x < TILE ? p.lse : p.delta, p, batch, head);
        if (threadIdx.x < 2 * TILE)
            copy_async_4(shared_address((threadIdx.x < TILE ? lse : delta) + row),
                         inside ? from + i0 + row : from, inside);
        copy_async_commit();
    }

    /// P and dS of a tile into shared memory.
    __device__ __forceinline__ void score_tile(const Problem& p, const Band& band, int i0, int j0) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int tx = lane % 8 + warp % 2 * 8, ty = lane / 8 + warp / 2 * 4;
        float s[QUERIES][KEYS] = {}, dp[QUERIES][KEYS] = {};
        multiply_rows<D, QUERIES, KEYS, QUERY_THREADS, 16>(s, q + ty * ROW<D>, k + tx * ROW<D>);
        multiply_rows<D, QUERIES, KEYS, QUERY_THREADS, 16>(dp, dout + ty * ROW<D>, v + tx * ROW<D>);
        const bool whole = i0 + TILE <= p.seq_q && j0 + TILE <= p.seq_k &&
                           band.covers(i0, i0 + TILE, j0, j0 + TILE);
        const float scale = p.scale * LOG2E;
#pragma unroll
        for (int r = 0; r < QUERIES; ++r) {
            const int i = ty + r * QUERY_THREADS;
            const float shift = lse[i] * LOG2E, row_delta = delta[i];
#pragma unroll
            for (int c = 0; c < KEYS; ++c) {
                const int j = tx + c * 16;
                const bool seen =
                    whole || (i0 + i < p.seq_q && j0 + j < p.seq_k && band.sees(i0 + i, j0 + j));
                const float probability = seen ? exp2f(fmaf(s[r][c], scale, -shift)) : 0.f;
                probabilities[i * SCORE_ROW + j] = probability;
                score_grads[i * SCORE_ROW + j] = probability * (dp[r][c] - row_delta);
            }
        }
    }

    /// dQ of a tile, added in global memory.
    __device__ __forceinline__ void add_query_grads(const Problem& p, float* dq, int i0) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int dg = D_THREADS == 8 ? lane % 8 : lane % 8 + warp % 2 * 8;
        const int ig = lane / 8 + 4 * (D_THREADS == 8 ? warp : warp / 2);
        float acc[DQ_ROWS][4 * D_GROUPS] = {};
        multiply_scores<D, DQ_ROWS, D_GROUPS, DQ_STEP, 4 * D_THREADS>(
            acc, score_grads + ig * SCORE_ROW, k + 4 * dg);
#pragma unroll
        for (int r = 0; r < DQ_ROWS; ++r) {
            const int i = i0 + ig + r * DQ_STEP;
#pragma unroll
            for (int g = 0; g < D_GROUPS; ++g) {
                const int d = 4 * (dg + g * D_THREADS);
                const float* x = acc[r] + 4 * g;
                if (i < p.seq_q && d < p.head_dim)
                    add_float4(dq + i * p.dq.seq + d, make_float4(x[0] * p.scale, x[1] * p.scale,
                                                                  x[2] * p.scale, x[3] * p.scale));
            }
        }
    }

    /// The gradients of key tile `tile` of one key-value head, whole.
    __device__ __forceinline__ void key_tile(const Problem& p, int batch, int kv, int tile) {
        const int j0 = tile * TILE, group = p.heads / p.kv_heads;
        const Band band(p);
        int first, end;
        band.queries(j0, min(j0 + TILE, p.seq_k), p.seq_q, first, end);
        const int first_tile = first / TILE;
        const int tiles = end > first ? ceil_div(end, TILE) - first_tile : 0;
        const int steps = tiles * group;

        load_tile<D, THREADS>(k, plane<float>(p.k, batch, kv), p.k.seq, j0, p.seq_k, p.head_dim);
        load_tile<D, THREADS>(v, plane<float>(p.v, batch, kv), p.v.seq, j0, p.seq_k, p.head_dim_v);
        copy_async_commit();  // in a group even with no query to visit, or no wait includes them
        if (steps > 0) load_queries(p, batch, kv * group, first_tile * TILE);

        // The first half of the threads holds dV, the second dK: 8 keys a thread, so
        // that 32 products come of 3 loads instead of 2 × 16 of 4.
        const bool holds_dv = threadIdx.x < THREADS / 2;
        const int half = threadIdx.x % (THREADS / 2), lane = half % 32, warp = half / 32;
        const int dg = D_THREADS == 8 ? lane % 8 : lane % 8 + warp % 2 * 8;
        const int jg = lane / 8 + 4 * (D_THREADS == 8 ? warp : warp / 2);
        float acc[8][4 * D_GROUPS] = {};

        for (int step = 0; step < steps; ++step) {
            const int head = kv * group + step / tiles;
            const int i0 = (first_tile + step % tiles) * TILE;
            copy_async_wait<0>();
            __syncthreads();
            score_tile(p, band, i0, j0);
            __syncthreads();
            multiply_transposed<D, D_GROUPS, 4 * D_THREADS>(
                acc, (holds_dv ? probabilities : score_grads) + 4 * jg,
                (holds_dv ? dout : q) + 4 * dg);
            __syncthreads();
            // dQ needs K and dS only: the next queries travel meanwhile.
            if (step + 1 < steps)
                load_queries(p, batch, kv * group + (step + 1) / tiles,
                             (first_tile + (step + 1) % tiles) * TILE);
            add_query_grads(p, plane<float>(p.dq, batch, head), i0);
        }

        const Tensor& gradient = holds_dv ? p.dv : p.dk;
        float* to = plane<float>(gradient, batch, kv);
        const float factor = holds_dv ? 1.f : p.scale;
        const int columns = holds_dv ? p.head_dim_v : p.head_dim;
#pragma unroll
        for (int r = 0; r < 8; ++r) {
            const int j = j0 + 4 * jg + r % 4 + r / 4 * 32;
#pragma unroll
            for (int g = 0; g < D_GROUPS; ++g) {
                const int d = 4 * (dg + g * D_THREADS);
                const float* x = acc[r] + 4 * g;
                if (j < p.seq_k && d < columns)
                    *reinterpret_cast<float4*>(to + j * gradient.seq + d) =
                        make_float4(x[0] * factor, x[1] * factor, x[2] * factor, x[3] * factor);
            }
        }
        copy_async_wait<0>();  // with no query to visit, K and V are still on their way
        __syncthreads();       // the next key tile overwrites K, V and dS
    }
};

}  // namespace simt

#define SIMT_PREPARE(NAME)                                  \
    static_assert(simt::PREPARE_QUERIES == 8, "queries");   \
    static_assert(simt::PREPARE_THREADS == 256, "threads"); \
    extern "C" __global__ void NAME(const Problem p) { simt::prepare_gradients(p); }

#define SIMT_BACKWARD(NAME, BODY, D, BLOCK, BYTES)                                     \
    static_assert(simt::TILE == 64, "queries");                                        \
    static_assert(simt::TILE == 64, "keys");                                           \
    static_assert(simt::Backward<D>::THREADS == BLOCK, "threads");                     \
    static_assert(simt::Backward<D>::SHARED_BYTES == BYTES, "shared_bytes");           \
    extern "C" __global__ void __launch_bounds__(                                      \
        simt::Backward<D>::THREADS, simt::Backward<D>::BLOCKS) NAME(const Problem p) { \
        BODY<D>(p);                                                                    \
    }
