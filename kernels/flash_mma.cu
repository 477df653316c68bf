// Fused 16-bit attention on tensor cores through mma.sync: the class of kernel
// FlashAttention-2 is (Dao, arXiv:2307.08691), which is also what it is measured
// against. Forward here, backward in flash_mma_backward.cu.
//
// A block of 4 warps owns 128 queries, 32 a warp, so that each fragment of K and V read
// from shared memory feeds two mma. Q stays in shared memory: in registers it would not
// leave room for the 32 × D of output. Scores live in registers only, and become the A
// operand of P·V without moving (the accumulator of one mma has the layout of the operand
// of the next); a key tile has 64 keys at D = 128 and 128 at D = 64, what fits there. V
// travels during Q·Kᵀ, the next K during softmax and P·V; two blocks an SM fill each
// other's waits. exp(x - m) is one FMA and one ex2, with scale·log2(e) folded in, and m is
// allowed to lag (see softmax). A masked problem starts its longest rows first.
//
// Launch contract, with contracts.toml; the smallest head_dim that holds the problem's:
//
//     forward    grid (ceil(seq_q / queries), heads, batch)
//
// No workspace; writes out and lse. head_dim and head_dim_v multiples of 8; every
// stride a multiple of 8 elements, data 16-byte aligned.

#include "mma_tile.cuh"

namespace {

using namespace mma;

template <typename T, int D>
struct Forward {
    static constexpr int THREADS = 128, QUERIES = 128;
    static constexpr int KEYS = 8192 / D;  // as many as registers hold beside D of output
    static constexpr int STRIPS = 2;       // of 16 queries a warp
    static constexpr int ROW_BYTES = D * 2;
    static constexpr int SHARED_BYTES = (QUERIES + 2 * KEYS) * ROW_BYTES;
    static constexpr int SCORE_TILES = KEYS / 8, OUT_TILES = D / 8;

    using Scores = float[STRIPS][SCORE_TILES][4];
    using Out = float[STRIPS][OUT_TILES][4];

    unsigned q, k, v;                 // tiles
    unsigned q_lane, k_lane, v_lane;  // and where this lane points ldmatrix

    __device__ __forceinline__ explicit Forward(const void* shared) {
        q = shared_address(shared);
        k = q + QUERIES * ROW_BYTES;
        v = k + KEYS * ROW_BYTES;
        q_lane = q + lane_rows_first<D>(threadIdx.x / 32 * 16 * STRIPS, 0);
        k_lane = k + lane_columns_first<D>(0, 0);
        v_lane = v + lane_rows_first<D>(0, 0);
    }

    /// s = Q·Kᵀ, unscaled.
    __device__ __forceinline__ void scores(Scores& s) const {
#pragma unroll
        for (int m = 0; m < STRIPS; ++m)
#pragma unroll
            for (int n = 0; n < SCORE_TILES; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) s[m][n][e] = 0.f;
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
            unsigned a[STRIPS][4];
#pragma unroll
            for (int m = 0; m < STRIPS; ++m)
                load_matrices(a[m], (q_lane ^ d * 32) + m * 16 * ROW_BYTES);
#pragma unroll
            for (int n = 0; n < SCORE_TILES; n += 2) {
                unsigned b[4];
                load_matrices(b, (k_lane ^ d * 32) + n * 8 * ROW_BYTES);
#pragma unroll
                for (int m = 0; m < STRIPS; ++m) {
                    multiply<T>(s[m][n], a[m], b[0], b[1]);
                    multiply<T>(s[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    /// acc += P·V with P rounded to T.
    __device__ __forceinline__ void add_values(const Scores& s, Out& acc) const {
#pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {
            unsigned a[STRIPS][4];
#pragma unroll
            for (int m = 0; m < STRIPS; ++m) {
                a[m][0] = pack<T>(s[m][2 * j][0], s[m][2 * j][1]);
                a[m][1] = pack<T>(s[m][2 * j][2], s[m][2 * j][3]);
                a[m][2] = pack<T>(s[m][2 * j + 1][0], s[m][2 * j + 1][1]);
                a[m][3] = pack<T>(s[m][2 * j + 1][2], s[m][2 * j + 1][3]);
            }
#pragma unroll
            for (int d = 0; d < OUT_TILES; d += 2) {
                unsigned b[4];
                load_transposed(b, (v_lane ^ d * 16) + j * 16 * ROW_BYTES);
#pragma unroll
                for (int m = 0; m < STRIPS; ++m) {
                    multiply<T>(acc[m][d], a[m], b[0], b[1]);
                    multiply<T>(acc[m][d + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    /// -inf where a query does not see a key. `i0` is this lane's first query, `j0` its
    /// first key; a lane holds rows i0 + 16 m + 8 e and columns j0 + 8 n + {0, 1}.
    static __device__ __forceinline__ void mask(const Band& band, int i0, int j0, int seq_k,
                                                Scores& s) {
#pragma unroll
        for (int m = 0; m < STRIPS; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int i = i0 + m * 16 + half * 8;
                // Visible columns of this row, relative to j0.
                const int low = i + band.low - j0, high = min(i + band.high, seq_k - 1) - j0;
#pragma unroll
                for (int n = 0; n < SCORE_TILES; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const int j = n * 8 + e;
                        if (j < low || j > high) s[m][n][half * 2 + e] = negative_infinity();
                    }
            }
    }

    /// A shift follows its row maximum only once that has grown by 2^SLACK. The shift cancels
    /// in the end whatever it is, and sums and products stay far inside the range of T and
    /// float; so the output is rescaled in the first tiles alone. FlashAttention-4's idea.
    static constexpr float SLACK = 8.f;
    /// The start of a shift: below any score, yet finite, so that a row that sees no
    /// key has exp2(-inf - shift) = 0 and not NaN.
    static constexpr float LOWEST = -1e30f;

    /// Scores to probabilities exp2(score·scale - shift), and their sums.
    static __device__ __forceinline__ void softmax(float scale, Scores& s, Out& acc,
                                                   float (&shift)[STRIPS][2],
                                                   float (&sum)[STRIPS][2]) {
        float above[STRIPS][2];
        bool grown = false;
#pragma unroll
        for (int m = 0; m < STRIPS; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float x = s[m][0][half * 2];
#pragma unroll
                for (int n = 0; n < SCORE_TILES; ++n)
                    x = fmaxf(x, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
                above[m][half] = x * scale;
                grown |= above[m][half] > shift[m][half] + SLACK;
            }
        if (__any_sync(0xffffffffu, grown)) {
#pragma unroll
            for (int m = 0; m < STRIPS; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float next = fmaxf(shift[m][half], above[m][half]);
                    const float decay = exp2_approx(shift[m][half] - next);
                    shift[m][half] = next;
                    sum[m][half] *= decay;
#pragma unroll
                    for (int d = 0; d < OUT_TILES; ++d) {
                        acc[m][d][half * 2] *= decay;
                        acc[m][d][half * 2 + 1] *= decay;
                    }
                }
        }
#pragma unroll
        for (int m = 0; m < STRIPS; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int n = 0; n < SCORE_TILES; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& x = s[m][n][half * 2 + e];
                        x = exp2_approx(fmaf(x, scale, -shift[m][half]));
                        sum[m][half] += x;
                    }
    }
};

template <typename T, int D>
__device__ __forceinline__ void forward(const Problem& p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    using F = Forward<T, D>;
    const F tile(shared);
    const int head = blockIdx.y, batch = blockIdx.z, kv = head / (p.heads / p.kv_heads);
    // Under a mask that opens to the right, later queries see more keys: those first.
    const int block = p.mask_right < 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    const int i0 = block * F::QUERIES;
    const Band band(p);
    int first, end;
    band.keys(i0, min(i0 + F::QUERIES, p.seq_q), p.seq_k, first, end);
    first -= first % F::KEYS;

    const T* k = plane<T>(p.k, batch, kv);
    const T* v = plane<T>(p.v, batch, kv);
    load_tile<T, D, F::QUERIES, F::THREADS>(tile.q, plane<T>(p.q, batch, head), p.q.seq, i0,
                                            p.seq_q, p.head_dim);
    if (first < end)
        load_tile<T, D, F::KEYS, F::THREADS>(tile.k, k, p.k.seq, first, p.seq_k, p.head_dim);
    copy_async_commit();

    const int lane = threadIdx.x % 32;
    const int row = i0 + threadIdx.x / 32 * 16 * F::STRIPS + lane / 4;
    const float scale = p.scale * LOG2E;
    typename F::Out acc = {};
    float shift[F::STRIPS][2], sum[F::STRIPS][2] = {};
#pragma unroll
    for (int m = 0; m < F::STRIPS; ++m) shift[m][0] = shift[m][1] = F::LOWEST;

    for (int j0 = first; j0 < end; j0 += F::KEYS) {
        copy_async_wait<0>();
        __syncthreads();  // K is here, and V has been used
        load_tile<T, D, F::KEYS, F::THREADS>(tile.v, v, p.v.seq, j0, p.seq_k, p.head_dim_v);
        copy_async_commit();
        typename F::Scores s;
        tile.scores(s);
        if (j0 + F::KEYS > p.seq_k || !band.covers(i0, i0 + F::QUERIES, j0, j0 + F::KEYS))
            F::mask(band, row, j0 + lane % 4 * 2, p.seq_k, s);
        copy_async_wait<0>();
        __syncthreads();  // V is here, and K has been used
        if (j0 + F::KEYS < end)
            load_tile<T, D, F::KEYS, F::THREADS>(tile.k, k, p.k.seq, j0 + F::KEYS, p.seq_k,
                                                 p.head_dim);
        copy_async_commit();
        F::softmax(scale, s, acc, shift, sum);
        tile.add_values(s, acc);
    }

    copy_async_wait<0>();
    T* out = plane<T>(p.out, batch, head);
    float* lse = rows_of(p.lse, p, batch, head);
#pragma unroll
    for (int m = 0; m < F::STRIPS; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = sum[m][half];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            const int i = row + m * 16 + half * 8;
            if (i >= p.seq_q) continue;
            const float inverse = total > 0.f ? 1.f / total : 0.f;
            T* to = out + i * p.out.seq + lane % 4 * 2;
            if (lane % 4 == 0)
                lse[i] = total > 0.f ? LN2 * shift[m][half] + logf(total) : negative_infinity();
#pragma unroll
            for (int n = 0; n < F::OUT_TILES; ++n) {
                if (n * 8 < p.head_dim_v)
                    *reinterpret_cast<unsigned*>(to + n * 8) =
                        pack<T>(acc[m][n][half * 2] * inverse, acc[m][n][half * 2 + 1] * inverse);
            }
        }
}

}  // namespace

#define FLASH_MMA(DTYPE, T, D, TILE_KEYS, BYTES)                            \
    static_assert(Forward<T, D>::QUERIES == 128, "queries");                \
    static_assert(Forward<T, D>::KEYS == TILE_KEYS, "keys");                \
    static_assert(Forward<T, D>::THREADS == 128, "threads");                \
    static_assert(Forward<T, D>::SHARED_BYTES == BYTES, "shared_bytes");    \
    extern "C" __global__ void __launch_bounds__(Forward<T, D>::THREADS, 2) \
        flash_mma_forward_##DTYPE##_d##D(const Problem p) {                 \
        forward<T, D>(p);                                                   \
    }

FLASH_MMA(f16, __half, 64, 128, 49152)
FLASH_MMA(f16, __half, 128, 64, 65536)
FLASH_MMA(bf16, __nv_bfloat16, 64, 128, 49152)
FLASH_MMA(bf16, __nv_bfloat16, 128, 64, 65536)
