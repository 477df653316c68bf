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
// Launch contract
//   kernels  split_kv_part_{bf16,f16,f32}_d{64,128}, then split_kv_join_{...} likewise
//   part     grid (num_splits, ceil(heads / kv_heads * seq_q / 16), batch * kv_heads),
//            block 128, dynamic shared memory 98,304 bytes; f32: 106,496 for d64, 208,896
//            for d128 (rings 98,304 or 196,608, queries 64 * head_dim, probabilities 4096)
//   join     grid (batch * heads * seq_q, 1, 1), block 128, no dynamic shared memory
//   q, k, v, out  strided; strides in elements, of batch, sequence and head; the head
//            dimension is contiguous; base addresses and strides multiples of 16 bytes
//   workspace  f32, num_splits * batch * heads * seq_q * (head_dim + 1) elements, 16-byte
//            aligned, need not be cleared: part writes what join reads
//   lse      f32 [batch, heads, seq_q], natural logarithm; -inf for a query without keys
//   mask     query i sees keys i + band_low <= j <= i + band_high; full: -2^30, 2^30;
//            causal, bottom-right: -2^30, seq_k - seq_q
//   limits   1 <= num_splits <= 65535; seq_q and seq_k >= 1 and below 2^29; kv_heads
//            divides heads; batch * kv_heads <= 65535. Meant for seq_q <= 16: right
//            beyond, but the keys are read once more for each 16 rows.
//
// How many splits: enough to fill the device and no more, since each adds a row of
// workspace. Two blocks fit on a multiprocessor (f32 d128: one), so with `tiles` =
// grid.y * grid.z and slots = 2 * multiprocessors (or 1 *): the smallest n among
// 1 .. min(128, ceil(seq_k / 256)) whose last wave is at least 85 % as full as the best
// n's, fullness being w / ceil(w) with w = n * tiles / slots (FlashAttention-2's rule, on
// this kernel's slots).
#include "hopper.cuh"

namespace {

using namespace hopper;
using u16 = unsigned short;

constexpr int kRows = 16;  // packed queries of a block: the M of mma.sync
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kKeys = 16;  // keys of a warp's step
constexpr int kBlockKeys = kWarps * kKeys;

// In elements.
struct Strides {
    long long batch, seq, head;
};

struct Shape {
    int batch, heads, kv_heads, seq_q, seq_k, band_low, band_high, num_splits;
};

// The rows of a block are queries, and the heads of the group within a query.
struct Part {
    int batch, kv_head, group, first_row, rows, begin, end;

    __device__ explicit Part(const Shape& shape) {
        batch = blockIdx.z / shape.kv_heads;
        kv_head = blockIdx.z % shape.kv_heads;
        group = shape.heads / shape.kv_heads;
        first_row = blockIdx.y * kRows;
        rows = min(kRows, group * shape.seq_q - first_row);
        // Splits are cut where the key index is a multiple of 64, as evenly as that goes.
        const long long tiles = (shape.seq_k + kBlockKeys - 1) / kBlockKeys;
        begin = static_cast<int>(tiles * blockIdx.x / shape.num_splits) * kBlockKeys;
        end = static_cast<int>(tiles * (blockIdx.x + 1) / shape.num_splits) * kBlockKeys;
        end = min(end, shape.seq_k);
        // Of those, what at least one row sees.
        end = min(end, query(rows - 1) + shape.band_high + 1);
        begin = max(begin, query(0) + shape.band_low);
    }

    __device__ __forceinline__ int query(int row) const { return (first_row + row) / group; }
    __device__ __forceinline__ int head(int row) const {
        return kv_head * group + (first_row + row) % group;
    }
    // Where a row is in the workspace, counted in rows.
    __device__ __forceinline__ long long place(int row, const Shape& shape) const {
        const long long all = (long long)shape.batch * shape.heads * shape.seq_q;
        return blockIdx.x * all +
               ((long long)batch * shape.heads + head(row)) * shape.seq_q + query(row);
    }
};

// A warp's ring: kStages slots of [16 keys][head_dim], keys then values, and what is to be
// loaded into it next.
template <Dtype kDtype, int kHeadDim>
struct Ring {
    static constexpr int kElement = kDtype == Dtype::f32 ? 4 : 2;
    static constexpr int kRowBytes = kHeadDim * kElement;
    static constexpr int kHalf = kKeys * kRowBytes;
    static constexpr int kSlot = 2 * kHalf;
    // At least 128 KiB under way on each multiprocessor. Little's law asks for a quarter of
    // that at a latency of 1 us, but latency grows with the load.
    static constexpr int kStages = kSlot < 8192 ? 6 : 3;
    static constexpr int kWarpBytes = kStages * kSlot;

    u32 base;
    const char* k;
    const char* v;
    long long k_stride, v_stride;  // of a key, in bytes
    int next_key, end;

    __device__ __forceinline__ Ring(u32 shared, const Part& part, const void* k_all,
                                    const void* v_all, const Strides& k_strides,
                                    const Strides& v_strides)
        : base(shared + threadIdx.x / 32 * kWarpBytes),
          k(static_cast<const char*>(k_all) +
            (part.batch * k_strides.batch + part.kv_head * k_strides.head) * kElement),
          v(static_cast<const char*>(v_all) +
            (part.batch * v_strides.batch + part.kv_head * v_strides.head) * kElement),
          k_stride(k_strides.seq * kElement),
          v_stride(v_strides.seq * kElement),
          next_key(part.begin + threadIdx.x / 32 * kKeys),
          end(part.end) {}

    // Rows of at least 128 bytes: XOR with the row spreads 8 rows over all 32 banks.
    static __device__ __forceinline__ u32 at(int row, int chunk) {
        return row * kRowBytes + (chunk ^ (row & 7)) * 16;
    }

    __device__ __forceinline__ u32 slot(int stage) const { return base + stage * kSlot; }

    __device__ __forceinline__ void load(int stage) {
        constexpr int kChunks = kRowBytes / 16;  // of a row
        const int lane = threadIdx.x % 32;
        if (next_key < end) {
#pragma unroll
            for (int i = 0; i < kKeys * kChunks / 32; ++i) {
                const int chunk = lane % kChunks;
                const int row = (i * 32 + lane) / kChunks;
                const bool inside = next_key + row < end;
                const long long index = inside ? next_key + row : 0;
                const int bytes = inside ? 16 : 0;
                const u32 place = slot(stage) + at(row, chunk);
                copy_async(place, k + index * k_stride + chunk * 16, bytes);
                copy_async(place + kHalf, v + index * v_stride + chunk * 16, bytes);
            }
        }
        next_key += kBlockKeys;
        copy_commit();  // an empty group too: the count of groups is the clock
    }

    __device__ __forceinline__ void fill() {
#pragma unroll
        for (int stage = 0; stage < kStages - 1; ++stage) load(stage);
    }

    // Starts the load of the slot that was read last, and waits for that of `stage`.
    __device__ __forceinline__ void turn(int stage) {
        load(stage == 0 ? kStages - 1 : stage - 1);
        copy_wait<kStages - 1>();
        __syncwarp();
    }
};

// Joins the four warps' parts, each `maximum` (of scaled scores, base 2), `sum` and output
// [16][head_dim] in shared memory, and writes the block's rows to the workspace.
template <int kHeadDim>
__device__ __forceinline__ void join_warps(u32 outputs, u32 statistics, const Part& part,
                                           const Shape& shape, float* workspace) {
    float* const lse = workspace + (long long)shape.num_splits * shape.batch * shape.heads *
                                       shape.seq_q * kHeadDim;
    for (int index = threadIdx.x; index < part.rows * kHeadDim; index += kThreads) {
        const int row = index / kHeadDim, column = index % kHeadDim;
        float top = negative_infinity();
        for (int warp = 0; warp < kWarps; ++warp)
            top = fmaxf(top, load_float(statistics + (warp * 2 * kRows + row) * 4));
        if (top == negative_infinity()) top = 0.f;  // a row without keys: all weights are 0
        float sum = 0.f, out = 0.f;
        for (int warp = 0; warp < kWarps; ++warp) {
            const u32 own = statistics + (warp * 2 * kRows + row) * 4;
            const float weight = exp2_approx(load_float(own) - top);
            sum += weight * load_float(own + kRows * 4);
            out += weight * load_float(outputs + ((warp * kRows + row) * kHeadDim + column) * 4);
        }
        // Not `sum > 0`: NaN from the inputs must reach the output.
        const long long place = part.place(row, shape);
        if (sum != 0.f) workspace[place * kHeadDim + column] = out / sum;
        if (column == 0) lse[place] = sum == 0.f ? negative_infinity() : top + log2f(sum);
    }
}

// 16-bit types: scores and outputs by mma.sync.
template <Dtype kDtype, int kHeadDim>
__device__ __forceinline__ void part_mma(const u16* q, const u16* k, const u16* v,
                                         float* workspace, const Strides& q_strides,
                                         const Strides& k_strides, const Strides& v_strides,
                                         const Shape& shape, float scale_log2) {
    using Slots = Ring<kDtype, kHeadDim>;
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    __shared__ float statistics[kWarps * 2 * kRows];
    const Part part(shape);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Slots ring(shared_address(dynamic_shared), part, k, v, k_strides, v_strides);
    ring.fill();

    // Queries as the A operand, read while the first keys are under way.
    u32 a[kHeadDim / 16][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + 8 * half;
        const bool inside = row < part.rows;
        const u16* const source = q + part.batch * q_strides.batch +
                                  (inside ? part.query(row) * q_strides.seq +
                                                part.head(row) * q_strides.head
                                          : 0);
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i)
#pragma unroll
            for (int side = 0; side < 2; ++side)
                a[i][half + 2 * side] =
                    inside ? *reinterpret_cast<const u32*>(source + 16 * i + 8 * side +
                                                           2 * (lane % 4))
                           : 0;
    }

    float o[kHeadDim / 8][4] = {};
    float row_max[2] = {negative_infinity(), negative_infinity()}, row_sum[2] = {};
    int low[2], high[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int query = part.query(min(lane / 4 + 8 * half, part.rows - 1));
        low[half] = query + shape.band_low;
        high[half] = min(query + shape.band_high, part.end - 1);
    }

    int stage = 0;
    for (int key = part.begin + warp * kKeys; key < part.end; key += kBlockKeys) {
        ring.turn(stage);
        const u32 slot = ring.slot(stage);
        float s[2][4] = {};
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i) {
            u32 b[4];
            load_matrices(b, slot + Slots::at(lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2));
            mma<kDtype>(s[0], a[i], b[0], b[1]);
            mma<kDtype>(s[1], a[i], b[2], b[3]);
        }
        u32 p[4];
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
            p[half] = pack<kDtype>(x[0], x[1]);
            p[half + 2] = pack<kDtype>(x[2], x[3]);
#pragma unroll
            for (int i = 0; i < kHeadDim / 8; ++i) {
                o[i][2 * half] *= correction;
                o[i][2 * half + 1] *= correction;
            }
        }
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i) {
            u32 b[4];
            load_matrices_transposed(
                b, slot + Slots::kHalf + Slots::at(lane % 16, 2 * i + lane / 16));
            mma<kDtype>(o[2 * i], p, b[0], b[1]);
            mma<kDtype>(o[2 * i + 1], p, b[2], b[3]);
        }
        __syncwarp();  // all lanes have read the slot that the next step fills
        if (++stage == Slots::kStages) stage = 0;
    }

    // The rings become the outputs' meeting place.
    copy_wait<0>();
    __syncthreads();
    const u32 outputs = shared_address(dynamic_shared);
    const u32 stats = shared_address(statistics);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + 8 * half;
        float sum = row_sum[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) {
            store_float(stats + (warp * 2 * kRows + row) * 4, row_max[half]);
            store_float(stats + (warp * 2 * kRows + kRows + row) * 4, sum);
        }
        const u32 own = outputs + ((warp * kRows + row) * kHeadDim + 2 * (lane % 4)) * 4;
#pragma unroll
        for (int i = 0; i < kHeadDim / 8; ++i)
#pragma unroll
            for (int side = 0; side < 2; ++side)
                store_float(own + (8 * i + side) * 4, o[i][2 * half + side]);
    }
    __syncthreads();
    join_warps<kHeadDim>(outputs, stats, part, shape, workspace);
}

// f32: a lane owns one key (and half of its elements) for the scores, and head_dim / 32
// columns for the output; probabilities pass through shared memory in between.
template <int kHeadDim>
__device__ __forceinline__ void part_f32(const float* q, const float* k, const float* v,
                                         float* workspace, const Strides& q_strides,
                                         const Strides& k_strides, const Strides& v_strides,
                                         const Shape& shape, float scale_log2) {
    using Slots = Ring<Dtype::f32, kHeadDim>;
    constexpr int kColumns = kHeadDim / 32;
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    __shared__ float statistics[kWarps * 2 * kRows];
    const Part part(shape);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 base = shared_address(dynamic_shared);
    const u32 queries = base + kWarps * Slots::kWarpBytes;
    const u32 probabilities = queries + kRows * kHeadDim * 4 + warp * kRows * kKeys * 4;
    Slots ring(base, part, k, v, k_strides, v_strides);
    ring.fill();
    for (int index = threadIdx.x; index < kRows * kHeadDim; index += kThreads) {
        const int row = index / kHeadDim, column = index % kHeadDim;
        float x = 0.f;
        if (row < part.rows)
            x = q[part.batch * q_strides.batch + part.query(row) * q_strides.seq +
                  part.head(row) * q_strides.head + column] * scale_log2;
        store_float(queries + index * 4, x);
    }
    __syncthreads();

    float o[kRows][kColumns] = {};
    float row_max[kRows], row_sum[kRows] = {};
#pragma unroll
    for (int row = 0; row < kRows; ++row) row_max[row] = negative_infinity();
    const int own_key = lane % kKeys, side = lane / kKeys;

    int stage = 0;
    for (int key = part.begin + warp * kKeys; key < part.end; key += kBlockKeys) {
        ring.turn(stage);
        const u32 slot = ring.slot(stage);
        float s[kRows] = {}, correction[kRows];
        // Rows go by fours, and fours beyond the last row are left out.
#pragma unroll 2
        for (int i = 0; i < kHeadDim / 8; ++i) {
            const int chunk = 2 * i + side;  // the sides side by side: no bank conflict
            const float4 x = load_float4(slot + Slots::at(own_key, chunk));
#pragma unroll
            for (int four = 0; four < kRows; four += 4) {
                if (four >= part.rows) break;
#pragma unroll
                for (int row = four; row < four + 4; ++row) {
                    const float4 y = load_float4(queries + (row * kHeadDim + chunk * 4) * 4);
                    s[row] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
                }
            }
        }
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
            if (row / 4 * 4 >= part.rows) break;
            const int query = part.query(min(row, part.rows - 1));
            float x = s[row] + __shfl_xor_sync(0xffffffffu, s[row], kKeys);
            const int column = key + own_key;
            if (column < query + shape.band_low || column >= part.end ||
                column > query + shape.band_high)
                x = negative_infinity();
            float top = fmaxf(row_max[row], x);
#pragma unroll
            for (int step = 1; step < kKeys; step *= 2)
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
            const float shift = top == negative_infinity() ? 0.f : top;
            correction[row] = exp2_approx(row_max[row] - shift);
            row_max[row] = top;
            x = exp2_approx(x - shift);
            row_sum[row] = row_sum[row] * correction[row] + x;
            if (side == 0) store_float(probabilities + (row * kKeys + own_key) * 4, x);
        }
        __syncwarp();
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
            if (row / 4 * 4 >= part.rows) break;
#pragma unroll
            for (int c = 0; c < kColumns; ++c) o[row][c] *= correction[row];
        }
#pragma unroll 1
        for (int four_keys = 0; four_keys < kKeys; four_keys += 4) {
            float x[4][kColumns];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int byte = lane * kColumns * 4;
                const u32 from =
                    slot + Slots::kHalf + Slots::at(four_keys + i, byte / 16) + byte % 16;
                if constexpr (kColumns == 4) {
                    const float4 y = load_float4(from);
                    x[i][0] = y.x, x[i][1] = y.y, x[i][2] = y.z, x[i][3] = y.w;
                } else {
#pragma unroll
                    for (int c = 0; c < kColumns; ++c) x[i][c] = load_float(from + c * 4);
                }
            }
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                if (row / 4 * 4 >= part.rows) break;
                const float4 p = load_float4(probabilities + (row * kKeys + four_keys) * 4);
#pragma unroll
                for (int c = 0; c < kColumns; ++c)
                    o[row][c] += p.x * x[0][c] + p.y * x[1][c] + p.z * x[2][c] + p.w * x[3][c];
            }
        }
        __syncwarp();
        if (++stage == Slots::kStages) stage = 0;
    }

    copy_wait<0>();
    __syncthreads();
    const u32 stats = shared_address(statistics);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
        float sum = row_sum[row];
#pragma unroll
        for (int step = 1; step < kKeys; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) {
            store_float(stats + (warp * 2 * kRows + row) * 4, row_max[row]);
            store_float(stats + (warp * 2 * kRows + kRows + row) * 4, sum);
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
            const u32 place = (warp * kRows + row) * kHeadDim + lane * kColumns + c;
            store_float(base + place * 4, o[row][c]);
        }
    }
    __syncthreads();
    join_warps<kHeadDim>(base, stats, part, shape, workspace);
}

// A block a row of the output: the splits' parts, weighted by what each holds of the sum.
// Every warp takes each fourth split; a lane first finds the weight of one of 32 of them.
template <Dtype kDtype, int kHeadDim>
__device__ __forceinline__ void join_splits(const float* workspace, void* out, float* lse,
                                            const Strides& strides, const Shape& shape) {
    constexpr int kColumns = kHeadDim / 32;
    __shared__ float outputs[kWarps][kHeadDim], sums[kWarps];
    const long long rows = (long long)shape.batch * shape.heads * shape.seq_q;
    const long long row = blockIdx.x;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float* const part_lse = workspace + shape.num_splits * rows * kHeadDim + row;
    float top = negative_infinity();
    for (int split = lane; split < shape.num_splits; split += 32)
        top = fmaxf(top, part_lse[split * rows]);
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));

    float x[kColumns] = {}, sum = 0.f;
    for (int first = warp; first < shape.num_splits; first += 32 * kWarps) {
        const int own = first + lane * kWarps;
        const float own_lse = own < shape.num_splits ? part_lse[own * rows] : negative_infinity();
        const float own_weight = own_lse == negative_infinity() ? 0.f : exp2_approx(own_lse - top);
        sum += own_weight;
        const int count = min(32, (shape.num_splits - first + kWarps - 1) / kWarps);
#pragma unroll 8
        for (int i = 0; i < count; ++i) {
            const float weight = __shfl_sync(0xffffffffu, own_weight, i);
            const float* const source =
                workspace + ((first + i * kWarps) * rows + row) * kHeadDim + lane * kColumns;
            // A split without keys has weight 0, and its output was never written.
#pragma unroll
            for (int c = 0; c < kColumns; ++c) x[c] += weight > 0.f ? weight * source[c] : 0.f;
        }
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) outputs[warp][lane * kColumns + c] = x[c];
    if (lane == 0) sums[warp] = sum;
    __syncthreads();

    sum = sums[0] + sums[1] + sums[2] + sums[3];
    const int query = static_cast<int>(row % shape.seq_q);
    const int head = static_cast<int>(row / shape.seq_q % shape.heads);
    const long long batch = row / shape.seq_q / shape.heads;
    const long long offset = batch * strides.batch + query * strides.seq + head * strides.head;
    const int column = 2 * threadIdx.x;
    if (column < kHeadDim) {
        float pair[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const float all = outputs[0][column + c] + outputs[1][column + c] +
                              outputs[2][column + c] + outputs[3][column + c];
            pair[c] = sum == 0.f ? 0.f : all / sum;
        }
        if constexpr (kDtype == Dtype::f32)
            *reinterpret_cast<float2*>(static_cast<float*>(out) + offset + column) =
                make_float2(pair[0], pair[1]);
        else
            *reinterpret_cast<u32*>(static_cast<u16*>(out) + offset + column) =
                pack<kDtype>(pair[0], pair[1]);
    }
    if (threadIdx.x == 0)
        lse[row] = sum == 0.f ? negative_infinity() : (top + log2f(sum)) * 0.693147180559945309f;
}

}  // namespace

#define SPLIT_KV(TYPE, DTYPE, PART, HEAD_DIM)                                                      \
    extern "C" __global__ void __launch_bounds__(kThreads, 2) split_kv_part_##DTYPE##_d##HEAD_DIM( \
        const TYPE* q, const TYPE* k, const TYPE* v, float* workspace, Strides q_strides,          \
        Strides k_strides, Strides v_strides, int batch, int heads, int kv_heads, int seq_q,       \
        int seq_k, int band_low, int band_high, int num_splits, float scale_log2) {                \
        const Shape shape{batch, heads,    kv_heads,  seq_q,                                       \
                          seq_k, band_low, band_high, num_splits};                                 \
        PART(q, k, v, workspace, q_strides, k_strides, v_strides, shape, scale_log2);              \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(kThreads) split_kv_join_##DTYPE##_d##HEAD_DIM(    \
        const float* workspace, TYPE* out, float* lse, Strides out_strides, int batch, int heads,  \
        int kv_heads, int seq_q, int num_splits) {                                                 \
        const Shape shape{batch, heads, kv_heads, seq_q, 0, 0, 0, num_splits};                     \
        join_splits<Dtype::DTYPE, HEAD_DIM>(workspace, out, lse, out_strides, shape);              \
    }

SPLIT_KV(u16, bf16, (part_mma<Dtype::bf16, 64>), 64)
SPLIT_KV(u16, bf16, (part_mma<Dtype::bf16, 128>), 128)
SPLIT_KV(u16, f16, (part_mma<Dtype::f16, 64>), 64)
SPLIT_KV(u16, f16, (part_mma<Dtype::f16, 128>), 128)
SPLIT_KV(float, f32, part_f32<64>, 64)
SPLIT_KV(float, f32, part_f32<128>, 128)
