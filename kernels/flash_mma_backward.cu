// Backward of fused 16-bit attention on tensor cores through mma.sync (Dao,
// FlashAttention-2, arXiv:2307.08691, section 3.1; delta: FlashAttention, arXiv:2205.14135,
// appendix B.4). Its forward is flash_mma.cu.
//
// A block of 8 warps owns 128 keys, 16 a warp, with their dK and dV in registers, and walks
// over the queries that see them, Q = 8192/D at a time, for every query head of the group. It
// computes the scores transposed, [keys, queries]: then P and dS, still in registers, are
// the A operands of dV = Pᵀ·dO and dK = dSᵀ·Q, and only dS goes through shared memory once,
// for dQ = dS·K. The next Q and dO travel during all five products.
//
// dQ gathers from all key tiles by 16-byte atomic adds in a float32 workspace that has
// the order of the fragments, not of the tensor: whole warps then add 512 contiguous
// bytes, and the last kernel puts the elements in their places.
//
// Launch contract, with contracts.toml; the smallest head_dim that holds the problem's, in this
// order; reads out and lse, uses delta:
//
//     prepare    grid (ceil(seq_q / queries), heads, batch)
//     backward   grid (ceil(seq_k / keys), kv_heads, batch)
//     finish     grid (ceil(seq_q / queries), heads, batch)
//
// Workspace: 4·queries·D·batch·heads·ceil(seq_q / queries) bytes, D the compiled head_dim,
// 16-byte aligned, in any state (the first kernel clears it). head_dim and head_dim_v multiples of 8; every stride a
// multiple of 8 elements, data 16-byte aligned. dq is summed in no fixed order.

#include "mma_tile.cuh"

namespace {

using namespace mma;

constexpr int THREADS = 256, WARPS = 8, KEYS = 128;
/// Queries of a tile: as many as registers hold beside dK and dV.
template <int D>
constexpr int QUERIES_OF = 8192 / D;

/// The float32 dQ of one tile of queries, in the order of the fragments: float4 `n` of
/// `warp` and `lane` lies at [warp][n][lane].
template <int D>
struct QueryGrads {
    static constexpr int QUERIES = QUERIES_OF<D>;
    /// A warp holds 32 queries and 32 columns: the square reads the least shared memory.
    static constexpr int ROW_WARPS = QUERIES / 32;
    static constexpr int STRIPS = 2, STRIP_TILES = 4;  // of 16 queries; of 8 columns
    static constexpr int TILES = STRIPS * STRIP_TILES;
    static_assert(ROW_WARPS * D / 32 == WARPS, "the warps cover the tile");
    static __device__ __forceinline__ float4* of(const Problem& p, int batch, int head, int tile) {
        const long long index =
            (static_cast<long long>(batch) * p.heads + head) * ceil_div(p.seq_q, QUERIES) + tile;
        return reinterpret_cast<float4*>(p.workspace) + index * (QUERIES * D / 4) +
               threadIdx.x / 32 * TILES * 32 + threadIdx.x % 32;
    }
    static __device__ __forceinline__ int row_of_warp() {
        return threadIdx.x / 32 % ROW_WARPS * 32;
    }
    static __device__ __forceinline__ int column_of_warp() {
        return threadIdx.x / 32 / ROW_WARPS * 32;
    }
    /// First row and column of float4 `n`: its elements are (row, column), (row, column + 1),
    /// (row + 8, column), (row + 8, column + 1).
    static __device__ __forceinline__ int row(int n) {
        return row_of_warp() + n / STRIP_TILES * 16 + threadIdx.x % 32 / 4;
    }
    static __device__ __forceinline__ int column(int n) {
        return column_of_warp() + n % STRIP_TILES * 8 + threadIdx.x % 4 * 2;
    }
};

template <typename T, int D>
struct Backward {
    static constexpr int QUERIES = QUERIES_OF<D>;
    static constexpr int ROW_BYTES = D * 2, GRAD_ROW_BYTES = QUERIES * 2;
    static constexpr int QUERY_TILES = QUERIES / 8, OUT_TILES = D / 8;
    static constexpr int QUERY_BYTES = QUERIES * ROW_BYTES;
    static constexpr int SHARED_BYTES =
        2 * KEYS * ROW_BYTES + 4 * QUERY_BYTES + KEYS * GRAD_ROW_BYTES + 4 * QUERIES * 4;

    using Scores = float[QUERY_TILES][4];         // 16 keys × the tile's queries
    using Fragments = unsigned[QUERIES / 16][4];  // the same, packed as A operands
    using Out = float[OUT_TILES][4];              // 16 keys × D

    // q, dout, lse and delta have two stages each.
    unsigned k, v, q, dout, score_grads, rows;
    const float* row_values;

    __device__ __forceinline__ explicit Backward(const unsigned char* shared) {
        k = shared_address(shared);
        v = k + KEYS * ROW_BYTES;
        q = v + KEYS * ROW_BYTES;
        dout = q + 2 * QUERY_BYTES;
        score_grads = dout + 2 * QUERY_BYTES;
        rows = score_grads + KEYS * GRAD_ROW_BYTES;
        row_values = reinterpret_cast<const float*>(shared + (rows - k));
    }

    __device__ __forceinline__ void load_queries(const Problem& p, int batch, int head, int i0,
                                                 int stage) const {
        load_tile<T, D, QUERIES, THREADS>(q + stage * QUERY_BYTES, plane<T>(p.q, batch, head),
                                          p.q.seq, i0, p.seq_q, p.head_dim);
        load_tile<T, D, QUERIES, THREADS>(dout + stage * QUERY_BYTES, plane<T>(p.dout, batch, head),
                                          p.dout.seq, i0, p.seq_q, p.head_dim_v);
        if (threadIdx.x < 2 * QUERIES) {
            const int i = i0 + threadIdx.x % QUERIES;
            const bool inside = i < p.seq_q;
            const float* from = rows_of(threadIdx.x < QUERIES ? p.lse : p.delta, p, batch, head);
            copy_async_4(rows + (stage * 2 * QUERIES + threadIdx.x) * 4, inside ? from + i : from,
                         inside);
        }
        copy_async_commit();
    }

    /// This warp's 16 rows of K or V as A operands. Shared memory is what bounds this
    /// kernel, so they stay in registers where head_dim leaves some free.
    struct KeyRows {
        static constexpr bool HELD = D == 64;
        unsigned lane, held[HELD ? D / 16 : 1][4];

        __device__ __forceinline__ explicit KeyRows(unsigned tile) {
            lane = tile + lane_rows_first<D>(threadIdx.x / 32 * 16, 0);
            if constexpr (HELD) {
#pragma unroll
                for (int d = 0; d < D / 16; ++d) load_matrices(held[d], lane ^ d * 32);
            }
        }
        __device__ __forceinline__ void get(int d, unsigned (&a)[4]) const {
            if constexpr (HELD) {
#pragma unroll
                for (int e = 0; e < 4; ++e) a[e] = held[d][e];
            } else {
                load_matrices(a, lane ^ d * 32);
            }
        }
    };

    /// s = keys·queriesᵀ over head_dim: 16 rows of this warp, all queries of the tile.
    static __device__ __forceinline__ void multiply_rows(const KeyRows& keys, unsigned queries_lane,
                                                         Scores& s) {
#pragma unroll
        for (int n = 0; n < QUERY_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[n][e] = 0.f;
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            unsigned a[4];
            keys.get(d, a);
#pragma unroll
            for (int n = 0; n < QUERY_TILES; n += 2) {
                unsigned b[4];
                load_matrices(b, (queries_lane ^ d * 32) + n * 8 * ROW_BYTES);
                multiply<T>(s[n], a, b[0], b[1]);
                multiply<T>(s[n + 1], a, b[2], b[3]);
            }
        }
    }

    /// acc += scores·queries over the queries of the tile: 16 rows of this warp, all of D.
    static __device__ __forceinline__ void multiply_queries(const Fragments& a,
                                                            unsigned queries_lane, Out& acc) {
#pragma unroll
        for (int i = 0; i < QUERIES / 16; ++i)
#pragma unroll
            for (int d = 0; d < OUT_TILES; d += 2) {
                unsigned b[4];
                load_transposed(b, (queries_lane ^ d * 16) + i * 16 * ROW_BYTES);
                multiply<T>(acc[d], a[i], b[0], b[1]);
                multiply<T>(acc[d + 1], a[i], b[2], b[3]);
            }
    }

    static __device__ __forceinline__ void as_operands(const Scores& s, Fragments& a) {
#pragma unroll
        for (int i = 0; i < QUERIES / 16; ++i) {
            a[i][0] = pack<T>(s[2 * i][0], s[2 * i][1]);
            a[i][1] = pack<T>(s[2 * i][2], s[2 * i][3]);
            a[i][2] = pack<T>(s[2 * i + 1][0], s[2 * i + 1][1]);
            a[i][3] = pack<T>(s[2 * i + 1][2], s[2 * i + 1][3]);
        }
    }

    /// dSᵀ of this warp into shared memory, rounded to T, as a swizzled [keys, queries] tile.
    __device__ __forceinline__ void store_score_grads(const Fragments& a) const {
        const int lane = threadIdx.x % 32, key = threadIdx.x / 32 * 16 + lane / 4;
        const unsigned to = score_grads + swizzled<QUERIES>(key, 0) + lane % 4 * 4;
#pragma unroll
        for (int n = 0; n < QUERY_TILES; ++n) {
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(to ^ n * 16), "r"(a[n / 2][n % 2 * 2])
                         : "memory");
            asm volatile("st.shared.b32 [%0], %1;" ::"r"((to ^ n * 16) + 8 * GRAD_ROW_BYTES),
                         "r"(a[n / 2][n % 2 * 2 + 1])
                         : "memory");
        }
    }

    /// dQ = dS·K for a warp's queries and part of D, added to the workspace.
    __device__ __forceinline__ void add_query_grads(float4* to) const {
        using Grads = QueryGrads<D>;
        const unsigned a_lane = score_grads + lane_columns_first<QUERIES>(0, Grads::row_of_warp());
        const unsigned b_lane = k + lane_rows_first<D>(0, Grads::column_of_warp());
        float acc[Grads::STRIPS][Grads::STRIP_TILES][4] = {};
#pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {
            unsigned a[Grads::STRIPS][4];
#pragma unroll
            for (int m = 0; m < Grads::STRIPS; ++m)
                load_transposed(a[m], (a_lane ^ m * 32) + j * 16 * GRAD_ROW_BYTES);
#pragma unroll
            for (int d = 0; d < Grads::STRIP_TILES; d += 2) {
                unsigned b[4];
                load_transposed(b, (b_lane ^ d * 16) + j * 16 * ROW_BYTES);
#pragma unroll
                for (int m = 0; m < Grads::STRIPS; ++m) {
                    multiply<T>(acc[m][d], a[m], b[0], b[1]);
                    multiply<T>(acc[m][d + 1], a[m], b[2], b[3]);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < Grads::TILES; ++n) {
            const float* x = acc[n / Grads::STRIP_TILES][n % Grads::STRIP_TILES];
            add_float4(reinterpret_cast<float*>(to + n * 32), make_float4(x[0], x[1], x[2], x[3]));
        }
    }

    /// Writes this warp's rows of dK or dV.
    static __device__ __forceinline__ void store(const Tensor& gradient, const Problem& p,
                                                 const Out& acc, float factor, int columns,
                                                 int j0) {
        const int lane = threadIdx.x % 32;
        T* to = plane<T>(gradient, blockIdx.z, blockIdx.y);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int j = j0 + threadIdx.x / 32 * 16 + lane / 4 + half * 8;
            T* row = to + j * gradient.seq + lane % 4 * 2;
            if (j >= p.seq_k) continue;
#pragma unroll
            for (int n = 0; n < OUT_TILES; ++n) {
                if (n * 8 < columns)
                    *reinterpret_cast<unsigned*>(row + n * 8) =
                        pack<T>(acc[n][half * 2] * factor, acc[n][half * 2 + 1] * factor);
            }
        }
    }
};

template <typename T, int D>
__device__ __forceinline__ void backward(const Problem& p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    using B = Backward<T, D>;
    constexpr int QUERIES = B::QUERIES;
    const B tile(shared);
    const int kv = blockIdx.y, batch = blockIdx.z, group = p.heads / p.kv_heads;
    const int j0 = blockIdx.x * KEYS;
    const Band band(p);
    int first, end;
    band.queries(j0, min(j0 + KEYS, p.seq_k), p.seq_q, first, end);
    const int first_tile = first / QUERIES;
    const int tiles = end > first ? ceil_div(end, QUERIES) - first_tile : 0;
    const int steps = tiles * group;

    load_tile<T, D, KEYS, THREADS>(tile.k, plane<T>(p.k, batch, kv), p.k.seq, j0, p.seq_k,
                                   p.head_dim);
    load_tile<T, D, KEYS, THREADS>(tile.v, plane<T>(p.v, batch, kv), p.v.seq, j0, p.seq_k,
                                   p.head_dim_v);
    // Commits K and V too; with no query to visit they are never used.
    if (steps > 0) tile.load_queries(p, batch, kv * group, first_tile * QUERIES, 0);

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float scale = p.scale * LOG2E;
    copy_async_wait<0>();
    __syncthreads();  // K and V are here
    const typename B::KeyRows k_rows(tile.k), v_rows(tile.v);
    typename B::Out dk = {}, dv = {};

    int head = kv * group, tile_index = first_tile;
    for (int step = 0; step < steps; ++step) {
        const int stage = step % 2, i0 = tile_index * QUERIES;
        float4* dq = QueryGrads<D>::of(p, batch, head, tile_index);
        if (++tile_index == first_tile + tiles) tile_index = first_tile, ++head;
        copy_async_wait<0>();
        __syncthreads();  // Q and dO are here; the other stage and dS have been used
        if (step + 1 < steps) tile.load_queries(p, batch, head, tile_index * QUERIES, 1 - stage);

        const unsigned q = tile.q + stage * B::QUERY_BYTES;
        const unsigned dout = tile.dout + stage * B::QUERY_BYTES;
        const float* lse = tile.row_values + stage * 2 * QUERIES + lane % 4 * 2;
        typename B::Scores s;
        B::multiply_rows(k_rows, q + lane_columns_first<D>(0, 0), s);
#pragma unroll
        for (int n = 0; n < B::QUERY_TILES; ++n) {
            const float2 shift = *reinterpret_cast<const float2*>(lse + n * 8);
#pragma unroll
            for (int e = 0; e < 4; ++e)
                s[n][e] = exp2_approx(fmaf(s[n][e], scale, -LOG2E * (e % 2 ? shift.y : shift.x)));
        }
        // Queries past seq_q need no mask: their dO is zero, and so is their dS.
        if (j0 + KEYS > p.seq_k || !band.covers(i0, i0 + QUERIES, j0, j0 + KEYS)) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int j = j0 + warp * 16 + lane / 4 + half * 8, i = i0 + lane % 4 * 2;
                // Queries that see key j, relative to i; none for a key past the end.
                const int low = j < p.seq_k ? j - band.high - i : QUERIES, high = j - band.low - i;
#pragma unroll
                for (int n = 0; n < B::QUERY_TILES; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (n * 8 + e < low || n * 8 + e > high) s[n][half * 2 + e] = 0.f;
            }
        }
        typename B::Fragments a;
        B::as_operands(s, a);
        typename B::Scores dp;
        B::multiply_rows(v_rows, dout + lane_columns_first<D>(0, 0), dp);
#pragma unroll
        for (int n = 0; n < B::QUERY_TILES; ++n) {
            const float2 delta = *reinterpret_cast<const float2*>(lse + QUERIES + n * 8);
#pragma unroll
            for (int e = 0; e < 4; ++e) s[n][e] *= dp[n][e] - (e % 2 ? delta.y : delta.x);
        }
        B::multiply_queries(a, dout + lane_rows_first<D>(0, 0), dv);
        B::as_operands(s, a);
        tile.store_score_grads(a);
        __syncthreads();  // dS is here
        B::multiply_queries(a, q + lane_rows_first<D>(0, 0), dk);
        tile.add_query_grads(dq);
    }
    B::store(p.dv, p, dv, 1.f, p.head_dim_v, j0);
    B::store(p.dk, p, dk, p.scale, p.head_dim, j0);
}

/// delta of a tile of queries, and zeros into their part of the workspace.
template <typename T, int D>
__device__ __forceinline__ void prepare(const Problem& p) {
    constexpr int QUERIES = QUERIES_OF<D>;
    const int head = blockIdx.y, batch = blockIdx.z, lane = threadIdx.x % 32;
    const T* out = plane<T>(p.out, batch, head);
    const T* dout = plane<T>(p.dout, batch, head);
    float* delta = rows_of(p.delta, p, batch, head);
#pragma unroll
    for (int part = 0; part < QUERIES / WARPS; ++part) {
        const int i = blockIdx.x * QUERIES + part * WARPS + threadIdx.x / 32;
        float sum = 0.f;
        if (i < p.seq_q && lane * 4 < p.head_dim_v) {
            const uint2 a = *reinterpret_cast<const uint2*>(out + i * p.out.seq + lane * 4);
            const uint2 b = *reinterpret_cast<const uint2*>(dout + i * p.dout.seq + lane * 4);
            const T* x = reinterpret_cast<const T*>(&a);
            const T* y = reinterpret_cast<const T*>(&b);
#pragma unroll
            for (int e = 0; e < 4; ++e) sum = fmaf(to_float(x[e]), to_float(y[e]), sum);
        }
        sum = warp_sum(sum);
        if (lane == 0 && i < p.seq_q) delta[i] = sum;
    }
    float4* dq = QueryGrads<D>::of(p, batch, head, blockIdx.x);
#pragma unroll
    for (int n = 0; n < QueryGrads<D>::TILES; ++n) dq[n * 32] = make_float4(0.f, 0.f, 0.f, 0.f);
}

/// The workspace, scaled and rounded, into dq.
template <typename T, int D>
__device__ __forceinline__ void finish(const Problem& p) {
    const int head = blockIdx.y, batch = blockIdx.z;
    const float4* from = QueryGrads<D>::of(p, batch, head, blockIdx.x);
    T* dq = plane<T>(p.dq, batch, head);
#pragma unroll
    for (int n = 0; n < QueryGrads<D>::TILES; ++n) {
        const float4 x = from[n * 32];
        const int i = blockIdx.x * QUERIES_OF<D> + QueryGrads<D>::row(n);
        const int d = QueryGrads<D>::column(n);
        if (d >= p.head_dim) continue;
        if (i < p.seq_q)
            *reinterpret_cast<unsigned*>(dq + i * p.dq.seq + d) =
                pack<T>(x.x * p.scale, x.y * p.scale);
        if (i + 8 < p.seq_q)
            *reinterpret_cast<unsigned*>(dq + (i + 8) * p.dq.seq + d) =
                pack<T>(x.z * p.scale, x.w * p.scale);
    }
}

}  // namespace

#define FLASH_MMA_SIDE(NAME, BODY, T, D, TILE_QUERIES)       \
    static_assert(QUERIES_OF<D> == TILE_QUERIES, "queries"); \
    static_assert(THREADS == 256, "threads");                \
    extern "C" __global__ void NAME(const Problem p) { BODY<T, D>(p); }
#define FLASH_MMA_BACKWARD(DTYPE, T, D, TILE_QUERIES, BYTES)                      \
    FLASH_MMA_SIDE(flash_mma_prepare_##DTYPE##_d##D, prepare, T, D, TILE_QUERIES) \
    static_assert(QUERIES_OF<D> == TILE_QUERIES, "queries");                      \
    static_assert(KEYS == 128, "keys");                                           \
    static_assert(THREADS == 256, "threads");                                     \
    static_assert(Backward<T, D>::SHARED_BYTES == BYTES, "shared_bytes");         \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                      \
        flash_mma_backward_##DTYPE##_d##D(const Problem p) {                      \
        backward<T, D>(p);                                                        \
    }                                                                             \
    FLASH_MMA_SIDE(flash_mma_finish_##DTYPE##_d##D, finish, T, D, TILE_QUERIES)

FLASH_MMA_BACKWARD(f16, __half, 64, 128, 133120)
FLASH_MMA_BACKWARD(f16, __half, 128, 64, 148480)
FLASH_MMA_BACKWARD(bf16, __nv_bfloat16, 64, 128, 133120)
FLASH_MMA_BACKWARD(bf16, __nv_bfloat16, 128, 64, 148480)
