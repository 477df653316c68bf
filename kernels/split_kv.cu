// Decode attention: few queries, many keys, the keys split over blocks.
//
// With one or a few queries attention does no more than read the keys and values once, so
// the only question is how many multiprocessors read at the same time. Batch times
// key-value heads is often less than the device has; the keys are therefore cut into
// `num_splits` ranges, each block attends to one of them, and a second kernel joins the
// parts by their log-sum-exps (Flash-Decoding: Dao, Haziza, Massa & Sizov 2023,
// https://crfm.stanford.edu/2023/10/12/flashdecoding.html). All query heads of a group,
// and all queries, are the rows of one tile, so that their common keys are read once.
//
// Inside a block every warp is on its own until the end: it takes every fourth 16 keys of
// the block's range through a ring of its own in shared memory (cp.async, swizzled in
// 16-byte chunks), and keeps its own maximum, sum and output. No block-wide barrier stands
// in the stream. 16-bit types multiply by mma.sync m16n8k16; most of the 16 rows are
// padding when the group is small, which costs nothing here. f32 multiplies in f32: TF32
// would lose 13 bits.
//
// Launch contract, with contracts.toml, in this order; D is the compiled head_dim:
//
//     part, part_f32   grid (num_splits, ceil(heads / kv_heads · seq_q / queries),
//                            batch·kv_heads); of f32 at D = 128 more shared memory than
//                            sm_80 lends a block
//     join             grid (batch·heads·seq_q, 1, 1)
//
// One argument, `Problem`; num_splits from 1 to 65535 in it. head_dim and head_dim_v equal
// to D; every stride of q, k, v and out a multiple of 16 bytes, data 16-byte aligned; seq_q
// and seq_k below 2^29, the grid's y below 65536. Writes out and lse. Meant for few
// queries: right beyond 16 rows a group, but keys are read again for each 16.
// Workspace: 4·num_splits·batch·heads·seq_q·(D + 1) bytes, 16-byte aligned, in any state.
//
// The number of splits: enough to fill the device and no more, since each adds a row of
// workspace. With `tiles` = grid.y · grid.z and `slots` = multiprocessors times the blocks
// that fit on one (two on sm_90 and sm_100, f32 d128: one; on sm_80 one): the smallest n
// among 1 .. min(128, ceil(seq_k / 256)) whose last wave is at least 85 % as full as the
// best n's, fullness being w / ceil(w) with w = n · tiles / slots (FlashAttention-2's rule,
// on this kernel's slots).
#include "split_kv_part.cuh"

namespace {

using namespace mma;
using namespace split_kv;

/// 16-bit types: scores and outputs by mma.sync.
template <typename T, int D>
__device__ __forceinline__ void part_mma(const Problem& p) {
    using Slots = Ring<T, D>;
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    __shared__ float statistics[WARPS * 2 * ROWS];
    const Band band(p);
    const Part part(p, band);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float scale_log2 = p.scale * LOG2E;
    Slots ring(shared_address(dynamic_shared), part, p);
    ring.fill();

    // Queries as the A operand, read while the first keys are under way.
    unsigned a[D / 16][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + 8 * half;
        const bool inside = row < part.rows;
        const T* const source =
            inside ? plane<T>(p.q, part.batch, part.head(row)) + part.query(row) * p.q.seq
                   : plane<T>(p.q, part.batch, 0);
#pragma unroll
        for (int i = 0; i < D / 16; ++i)
#pragma unroll
            for (int side = 0; side < 2; ++side)
                a[i][half + 2 * side] = inside ? *reinterpret_cast<const unsigned*>(
                                                     source + 16 * i + 8 * side + 2 * (lane % 4))
                                               : 0;
    }

    float o[D / 8][4] = {};
    float row_max[2] = {negative_infinity(), negative_infinity()}, row_sum[2] = {};
    int low[2], high[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int query = part.query(min(lane / 4 + 8 * half, part.rows - 1));
        low[half] = query + band.low;
        high[half] = min(query + band.high, part.end - 1);
    }

    int stage = 0;
    for (int key = part.begin + warp * KEYS; key < part.end; key += BLOCK_KEYS) {
        ring.turn(stage);
        const unsigned slot = ring.slot(stage);
        float s[2][4] = {};
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            unsigned b[4];
            load_matrices(b, slot + Slots::at(lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2));
            multiply<T>(s[0], a[i], b[0], b[1]);
            multiply<T>(s[1], a[i], b[2], b[3]);
        }
        unsigned weights[4];  // as an A operand
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float x[4], top = row_max[half];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int column = key + i / 2 * 8 + 2 * (lane % 4) + i % 2;
                x[i] = s[i / 2][2 * half + i % 2] * scale_log2;
                if (column < low[half] || column > high[half]) x[i] = negative_infinity();
                top = fmaxf(top, x[i]);
            }
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float shift = top == negative_infinity() ? 0.f : top;
            const float correction = exp2_approx(row_max[half] - shift);
            row_max[half] = top;
            row_sum[half] *= correction;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                x[i] = exp2_approx(x[i] - shift);
                row_sum[half] += x[i];
            }
            weights[half] = pack<T>(x[0], x[1]);
            weights[half + 2] = pack<T>(x[2], x[3]);
#pragma unroll
            for (int i = 0; i < D / 8; ++i) {
                o[i][2 * half] *= correction;
                o[i][2 * half + 1] *= correction;
            }
        }
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            unsigned b[4];
            load_transposed(b, slot + Slots::HALF + Slots::at(lane % 16, 2 * i + lane / 16));
            multiply<T>(o[2 * i], weights, b[0], b[1]);
            multiply<T>(o[2 * i + 1], weights, b[2], b[3]);
        }
        __syncwarp();  // all lanes have read the slot that the next step fills
        if (++stage == Slots::STAGES) stage = 0;
    }

    // The rings become the outputs' meeting place.
    copy_async_wait<0>();
    __syncthreads();
    const unsigned outputs = shared_address(dynamic_shared);
    const unsigned stats = shared_address(statistics);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + 8 * half;
        float sum = row_sum[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) {
            store_float(stats + (warp * 2 * ROWS + row) * 4, row_max[half]);
            store_float(stats + (warp * 2 * ROWS + ROWS + row) * 4, sum);
        }
        const unsigned own = outputs + ((warp * ROWS + row) * D + 2 * (lane % 4)) * 4;
#pragma unroll
        for (int i = 0; i < D / 8; ++i)
#pragma unroll
            for (int side = 0; side < 2; ++side)
                store_float(own + (8 * i + side) * 4, o[i][2 * half + side]);
    }
    __syncthreads();
    join_warps<D>(outputs, stats, part, p);
}

/// f32: a lane owns one key (and half of its elements) for the scores, and head_dim / 32
/// columns for the output; probabilities pass through shared memory in between.
template <int D>
__device__ __forceinline__ void part_f32(const Problem& p) {
    using Slots = Ring<float, D>;
    constexpr int COLUMNS = D / 32;
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    __shared__ float statistics[WARPS * 2 * ROWS];
    const Band band(p);
    const Part part(p, band);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float scale_log2 = p.scale * LOG2E;
    const unsigned base = shared_address(dynamic_shared);
    const unsigned queries = base + WARPS * Slots::WARP_BYTES;
    const unsigned probabilities = queries + ROWS * D * 4 + warp * ROWS * KEYS * 4;
    Slots ring(base, part, p);
    ring.fill();
    for (int index = threadIdx.x; index < ROWS * D; index += THREADS) {
        const int row = index / D, column = index % D;
        float x = 0.f;
        if (row < part.rows)
            x = plane<float>(p.q, part.batch, part.head(row))[part.query(row) * p.q.seq + column] *
                scale_log2;
        store_float(queries + index * 4, x);
    }
    __syncthreads();

    float o[ROWS][COLUMNS] = {};
    float row_max[ROWS], row_sum[ROWS] = {};
#pragma unroll
    for (int row = 0; row < ROWS; ++row) row_max[row] = negative_infinity();
    const int own_key = lane % KEYS, side = lane / KEYS;

    int stage = 0;
    for (int key = part.begin + warp * KEYS; key < part.end; key += BLOCK_KEYS) {
        ring.turn(stage);
        const unsigned slot = ring.slot(stage);
        float s[ROWS] = {}, correction[ROWS];
        // Rows go by fours, and fours beyond the last row are left out.
#pragma unroll 2
        for (int i = 0; i < D / 8; ++i) {
            const int chunk = 2 * i + side;  // the sides side by side: no bank conflict
            const float4 x = load_float4(slot + Slots::at(own_key, chunk));
#pragma unroll
            for (int four = 0; four < ROWS; four += 4) {
                if (four >= part.rows) break;
#pragma unroll
                for (int row = four; row < four + 4; ++row) {
                    const float4 y = load_float4(queries + (row * D + chunk * 4) * 4);
                    s[row] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
                }
            }
        }
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (row / 4 * 4 >= part.rows) break;
            const int query = part.query(min(row, part.rows - 1));
            float x = s[row] + __shfl_xor_sync(0xffffffffu, s[row], KEYS);
            const int column = key + own_key;
            if (column < query + band.low || column >= part.end || column > query + band.high)
                x = negative_infinity();
            float top = fmaxf(row_max[row], x);
#pragma unroll
            for (int step = 1; step < KEYS; step *= 2)
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
            const float shift = top == negative_infinity() ? 0.f : top;
            correction[row] = exp2_approx(row_max[row] - shift);
            row_max[row] = top;
            x = exp2_approx(x - shift);
            row_sum[row] = row_sum[row] * correction[row] + x;
            if (side == 0) store_float(probabilities + (row * KEYS + own_key) * 4, x);
        }
        __syncwarp();
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (row / 4 * 4 >= part.rows) break;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) o[row][c] *= correction[row];
        }
#pragma unroll 1
        for (int four_keys = 0; four_keys < KEYS; four_keys += 4) {
            float x[4][COLUMNS];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int byte = lane * COLUMNS * 4;
                const unsigned from =
                    slot + Slots::HALF + Slots::at(four_keys + i, byte / 16) + byte % 16;
                if constexpr (COLUMNS == 4) {
                    const float4 y = load_float4(from);
                    x[i][0] = y.x, x[i][1] = y.y, x[i][2] = y.z, x[i][3] = y.w;
                } else {
#pragma unroll
                    for (int c = 0; c < COLUMNS; ++c) x[i][c] = load_float(from + c * 4);
                }
            }
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                if (row / 4 * 4 >= part.rows) break;
                const float4 w = load_float4(probabilities + (row * KEYS + four_keys) * 4);
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    o[row][c] += w.x * x[0][c] + w.y * x[1][c] + w.z * x[2][c] + w.w * x[3][c];
            }
        }
        __syncwarp();
        if (++stage == Slots::STAGES) stage = 0;
    }

    copy_async_wait<0>();
    __syncthreads();
    const unsigned stats = shared_address(statistics);
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        float sum = row_sum[row];
#pragma unroll
        for (int step = 1; step < KEYS; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) {
            store_float(stats + (warp * 2 * ROWS + row) * 4, row_max[row]);
            store_float(stats + (warp * 2 * ROWS + ROWS + row) * 4, sum);
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const unsigned place = (warp * ROWS + row) * D + lane * COLUMNS + c;
            store_float(base + place * 4, o[row][c]);
        }
    }
    __syncthreads();
    join_warps<D>(base, stats, part, p);
}

/// A block a row of the output: the splits' parts, weighted by what each holds of the sum.
/// Every warp takes each fourth split; a lane first finds the weight of one of 32 of them.
template <typename T, int D>
__device__ __forceinline__ void join_splits(const Problem& p) {
    constexpr int COLUMNS = D / 32;
    __shared__ float outputs[WARPS][D], sums[WARPS];
    const long long rows = static_cast<long long>(p.batch) * p.heads * p.seq_q;
    const long long row = blockIdx.x;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float* const part_lse = p.workspace + p.num_splits * rows * D + row;
    float top = negative_infinity();
    for (int split = lane; split < p.num_splits; split += 32)
        top = fmaxf(top, part_lse[split * rows]);
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));

    float x[COLUMNS] = {}, sum = 0.f;
    for (int first = warp; first < p.num_splits; first += 32 * WARPS) {
        const int own = first + lane * WARPS;
        const float own_lse = own < p.num_splits ? part_lse[own * rows] : negative_infinity();
        const float own_weight = own_lse == negative_infinity() ? 0.f : exp2_approx(own_lse - top);
        sum += own_weight;
        const int count = min(32, (p.num_splits - first + WARPS - 1) / WARPS);
#pragma unroll 8
        for (int i = 0; i < count; ++i) {
            const float weight = __shfl_sync(0xffffffffu, own_weight, i);
            const float* const source =
                p.workspace + ((first + i * WARPS) * rows + row) * D + lane * COLUMNS;
            // A split without keys has weight 0, and its output was never written.
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) x[c] += weight > 0.f ? weight * source[c] : 0.f;
        }
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) outputs[warp][lane * COLUMNS + c] = x[c];
    if (lane == 0) sums[warp] = sum;
    __syncthreads();

    sum = sums[0] + sums[1] + sums[2] + sums[3];
    const int batch = static_cast<int>(row / p.seq_q / p.heads);
    const int head = static_cast<int>(row / p.seq_q % p.heads);
    T* const out = plane<T>(p.out, batch, head) + row % p.seq_q * p.out.seq;
    const int column = 2 * threadIdx.x;
    if (column < D) {
        float pair[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const float all = outputs[0][column + c] + outputs[1][column + c] +
                              outputs[2][column + c] + outputs[3][column + c];
            pair[c] = sum == 0.f ? 0.f : all / sum;
        }
        if constexpr (sizeof(T) == 4)
            *reinterpret_cast<float2*>(out + column) = make_float2(pair[0], pair[1]);
        else
            *reinterpret_cast<unsigned*>(out + column) = pack<T>(pair[0], pair[1]);
    }
    if (threadIdx.x == 0) p.lse[row] = sum == 0.f ? negative_infinity() : (top + log2f(sum)) * LN2;
}

}  // namespace

#define SPLIT_KV(DTYPE, T, D, PART, BYTES)                      \
    static_assert(ROWS == 16, "queries");                       \
    static_assert(BLOCK_KEYS == 64, "keys");                    \
    static_assert(THREADS == 128, "threads");                   \
    static_assert(SHARED_BYTES<T, D> == BYTES, "shared_bytes"); \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)    \
        split_kv_part_##DTYPE##_d##D(const Problem p) {         \
        PART(p);                                                \
    }                                                           \
    static_assert(THREADS == 128, "threads");                   \
    extern "C" __global__ void __launch_bounds__(THREADS)       \
        split_kv_join_##DTYPE##_d##D(const Problem p) {         \
        join_splits<T, D>(p);                                   \
    }

SPLIT_KV(bf16, __nv_bfloat16, 64, (part_mma<__nv_bfloat16, 64>), 98304)
SPLIT_KV(bf16, __nv_bfloat16, 128, (part_mma<__nv_bfloat16, 128>), 98304)
SPLIT_KV(f16, __half, 64, (part_mma<__half, 64>), 98304)
SPLIT_KV(f16, __half, 128, (part_mma<__half, 128>), 98304)
SPLIT_KV(f32, float, 64, part_f32<64>, 106496)
SPLIT_KV(f32, float, 128, part_f32<128>, 208896)
