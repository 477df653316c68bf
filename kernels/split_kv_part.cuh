// The common parts of the kernels of split_kv.cu: which queries and keys are a block's, the ring of
// keys and values that each warp keeps to itself, and how the warps' parts become the block's.
#pragma once

#include "mma_tile.cuh"

namespace split_kv {

constexpr int ROWS = 16;  // packed queries of a block: the M of mma.sync
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int KEYS = 16;  // keys of a warp's step
constexpr int BLOCK_KEYS = WARPS * KEYS;

__device__ __forceinline__ float4 load_float4(unsigned shared) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(shared)
                 : "memory");
    return x;
}

__device__ __forceinline__ float load_float(unsigned shared) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(shared) : "memory");
    return x;
}

__device__ __forceinline__ void store_float(unsigned shared, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared), "f"(x) : "memory");
}

/// 16 bytes, or 16 zero bytes where `bytes` is 0: then nothing is read. Other than
/// copy_async_16 it asks L2 for whole lines: keys are read once, and soon.
__device__ __forceinline__ void copy_streamed(unsigned shared, const void* global, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(global), "r"(bytes)
                 : "memory");
}

/// The rows of a block are queries, and the heads of the group within a query.
struct Part {
    int batch, kv_head, group, first_row, rows, begin, end;

    __device__ __forceinline__ Part(const Problem& p, const Band& band) {
        batch = blockIdx.z / p.kv_heads;
        kv_head = blockIdx.z % p.kv_heads;
        group = p.heads / p.kv_heads;
        first_row = blockIdx.y * ROWS;
        rows = min(ROWS, group * p.seq_q - first_row);
        // Splits are cut where the key index is a multiple of 64, as evenly as that goes.
        const long long tiles = ceil_div(p.seq_k, BLOCK_KEYS);
        begin = static_cast<int>(tiles * blockIdx.x / p.num_splits) * BLOCK_KEYS;
        end = static_cast<int>(tiles * (blockIdx.x + 1) / p.num_splits) * BLOCK_KEYS;
        end = min(end, p.seq_k);
        // The part of those that at least one row sees.
        end = min(end, query(rows - 1) + band.high + 1);
        begin = max(begin, query(0) + band.low);
    }

    __device__ __forceinline__ int query(int row) const { return (first_row + row) / group; }
    __device__ __forceinline__ int head(int row) const {
        return kv_head * group + (first_row + row) % group;
    }
    /// The place of a row in the workspace, counted in rows.
    __device__ __forceinline__ long long place(int row, const Problem& p) const {
        const long long all = static_cast<long long>(p.batch) * p.heads * p.seq_q;
        const long long plane_index = static_cast<long long>(batch) * p.heads + head(row);
        return blockIdx.x * all + plane_index * p.seq_q + query(row);
    }
};

/// A warp's ring: STAGES slots of [16 keys][head_dim], keys then values, and the tile to
/// load into it next.
template <typename T, int D>
struct Ring {
    static constexpr int ROW_BYTES = D * sizeof(T);
    static constexpr int HALF = KEYS * ROW_BYTES;
    static constexpr int SLOT = 2 * HALF;
    /// At least 128 KiB under way on each multiprocessor. Little's law asks for a quarter of
    /// that at a latency of 1 us, but latency grows with the load.
    static constexpr int STAGES = SLOT < 8192 ? 6 : 3;
    static constexpr int WARP_BYTES = STAGES * SLOT;

    unsigned base;
    const char* k;
    const char* v;
    long long k_stride, v_stride;  // of a key, in bytes
    int next_key, end;

    __device__ __forceinline__ Ring(unsigned shared, const Part& part, const Problem& p)
        : base(shared + threadIdx.x / 32 * WARP_BYTES),
          k(reinterpret_cast<const char*>(plane<T>(p.k, part.batch, part.kv_head))),
          v(reinterpret_cast<const char*>(plane<T>(p.v, part.batch, part.kv_head))),
          k_stride(p.k.seq * sizeof(T)),
          v_stride(p.v.seq * sizeof(T)),
          next_key(part.begin + threadIdx.x / 32 * KEYS),
          end(part.end) {}

    /// Rows of at least 128 bytes: XOR with the row spreads 8 rows over all 32 banks.
    static __device__ __forceinline__ unsigned at(int row, int chunk) {
        return row * ROW_BYTES + (chunk ^ (row & 7)) * 16;
    }

    __device__ __forceinline__ unsigned slot(int stage) const { return base + stage * SLOT; }

    __device__ __forceinline__ void load(int stage) {
        constexpr int CHUNKS = ROW_BYTES / 16;  // of a row
        const int lane = threadIdx.x % 32;
        if (next_key < end) {
#pragma unroll
            for (int i = 0; i < KEYS * CHUNKS / 32; ++i) {
                const int chunk = lane % CHUNKS;
                const int row = (i * 32 + lane) / CHUNKS;
                const bool inside = next_key + row < end;
                const long long index = inside ? next_key + row : 0;
                const int bytes = inside ? 16 : 0;
                const unsigned place = slot(stage) + at(row, chunk);
                copy_streamed(place, k + index * k_stride + chunk * 16, bytes);
                copy_streamed(place + HALF, v + index * v_stride + chunk * 16, bytes);
            }
        }
        next_key += BLOCK_KEYS;
        copy_async_commit();  // an empty group too: the count of groups is the clock
    }

    __device__ __forceinline__ void fill() {
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) load(stage);
    }

    /// Starts the load of the slot that was read last, and waits for that of `stage`.
    __device__ __forceinline__ void turn(int stage) {
        load(stage == 0 ? STAGES - 1 : stage - 1);
        copy_async_wait<STAGES - 1>();
        __syncwarp();
    }
};

/// Dynamic shared memory: the warps' rings; in f32 the queries and probabilities too.
template <typename T, int D>
constexpr int SHARED_BYTES =
    WARPS * Ring<T, D>::WARP_BYTES + (sizeof(T) == 4 ? ROWS * D * 4 + WARPS * ROWS * KEYS * 4 : 0);

/// Joins the four warps' parts, each `maximum` (of scaled scores, base 2), `sum` and output
/// [16][head_dim] in shared memory, and writes the block's rows to the workspace.
template <int D>
__device__ __forceinline__ void join_warps(unsigned outputs, unsigned statistics, const Part& part,
                                           const Problem& p) {
    float* const lse =
        p.workspace + static_cast<long long>(p.num_splits) * p.batch * p.heads * p.seq_q * D;
    for (int index = threadIdx.x; index < part.rows * D; index += THREADS) {
        const int row = index / D, column = index % D;
        float top = negative_infinity();
        for (int warp = 0; warp < WARPS; ++warp)
            top = fmaxf(top, load_float(statistics + (warp * 2 * ROWS + row) * 4));
        if (top == negative_infinity()) top = 0.f;  // a row without keys: all weights are 0
        float sum = 0.f, out = 0.f;
        for (int warp = 0; warp < WARPS; ++warp) {
            const unsigned own = statistics + (warp * 2 * ROWS + row) * 4;
            const float weight = exp2_approx(load_float(own) - top);
            sum += weight * load_float(own + ROWS * 4);
            out += weight * load_float(outputs + ((warp * ROWS + row) * D + column) * 4);
        }
        // Not `sum > 0`: NaN from the inputs must reach the output.
        const long long place = part.place(row, p);
        if (sum != 0.f) p.workspace[place * D + column] = out / sum;
        if (column == 0) lse[place] = sum == 0.f ? negative_infinity() : top + log2f(sum);
    }
}

}  // namespace split_kv
