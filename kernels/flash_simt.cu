// Fused float32 attention on the plain FFMA units: forward with an online softmax over
// key tiles, backward by key tiles (Milakov & Gimelshein, arXiv:1805.02867; Dao et al.,
// FlashAttention, arXiv:2205.14135, and FlashAttention-2, arXiv:2307.08691). No score
// touches global memory. No tensor cores: see simt_tile.cuh.
//
// Forward: a block of 256 threads owns 128 queries. A half-warp owns 8 of their rows through
// scores, softmax and output alike, so that row maxima and sums are shuffles and the
// probabilities go through shared memory without a block barrier. The next K travels
// during P·V, V during Q·Kᵀ.
//
// Launch contract, with contracts.toml; the smallest head_dim that holds the problem's:
//
//   forward
//     forward    grid (ceil(seq_q / queries), heads, batch)
//   backward, in this order; reads out and lse, uses delta
//     prepare    grid (ceil(seq_q / queries), heads, batch)
//     backward   grid (ceil(seq_k / keys), kv_heads, batch)
//
// float32 only; no workspace. head_dim and head_dim_v multiples of 4; every stride a
// multiple of 4 elements, data 16-byte aligned. dq is summed in no fixed order. D = 128
// needs more shared memory than sm_80 lends a block.

#include "simt_backward.cuh"

namespace {

using namespace simt;

template <int D>
struct Forward {
    static constexpr int THREADS = 256;
    static constexpr int QUERIES = 128, ROW_STEP = 16;
    static constexpr int ROWS = QUERIES / ROW_STEP;  // queries ty + 16 r
    static constexpr int WIDTH = D / 16;             // columns of out a thread holds, in 4s or 2
    static constexpr int TENSOR_FLOATS = TILE * ROW<D>;
    static constexpr int SHARED_BYTES =
        4 * (QUERIES * ROW<D> + 2 * TENSOR_FLOATS + QUERIES * SCORE_ROW);

    float *q, *k, *v, *probabilities;
    int tx, ty;

    __device__ __forceinline__ explicit Forward(float* shared) {
        q = shared;
        k = q + QUERIES * ROW<D>;
        v = k + TENSOR_FLOATS;
        probabilities = v + TENSOR_FLOATS;
        tx = threadIdx.x % 16;
        ty = threadIdx.x / 16;
    }

    /// Scores of the thread's 4 queries and keys tx + 16 c, times scale·log2(e).
    __device__ __forceinline__ void scores(const Problem& p, const Band& band, int i0, int j0,
                                           float (&s)[ROWS][4]) {
        multiply_rows<D, ROWS, 4, ROW_STEP, 16>(s, q + ty * ROW<D>, k + tx * ROW<D>);
        const bool whole = j0 + TILE <= p.seq_k && band.covers(i0, i0 + QUERIES, j0, j0 + TILE);
        const float scale = p.scale * LOG2E;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int i = i0 + ty + r * ROW_STEP, j = j0 + tx + c * 16;
                const bool seen = whole || (j < p.seq_k && band.sees(i, j));
                s[r][c] = seen ? s[r][c] * scale : negative_infinity();
            }
    }

    /// out += P·V for the thread's rows and columns.
    __device__ __forceinline__ void add_values(float (&acc)[ROWS][WIDTH]) {
        const float* rows = probabilities + ty * SCORE_ROW;
        if constexpr (D == 32) {
            // 2 columns a thread: too narrow for the 4-wide product.
#pragma unroll 4
            for (int j = 0; j < TILE; ++j) {
                const float2 b = *reinterpret_cast<const float2*>(v + j * ROW<D> + 2 * tx);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const float a = rows[r * ROW_STEP * SCORE_ROW + j];
                    acc[r][0] = fmaf(a, b.x, acc[r][0]);
                    acc[r][1] = fmaf(a, b.y, acc[r][1]);
                }
            }
        } else {
            multiply_scores<D, ROWS, WIDTH / 4, ROW_STEP, 64>(acc, rows, v + 4 * tx);
        }
    }

    /// Column of out that acc[..][c] belongs to.
    __device__ __forceinline__ int column(int c) const {
        return D == 32 ? 2 * tx + c : 4 * tx + c % 4 + c / 4 * 64;
    }
};

__device__ __forceinline__ float half_warp_max(float x) {
#pragma unroll
    for (int step = 8; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

__device__ __forceinline__ float half_warp_sum(float x) {
#pragma unroll
    for (int step = 8; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

template <int D>
__device__ __forceinline__ void forward(const Problem& p) {
    extern __shared__ __align__(16) float shared[];
    using F = Forward<D>;
    F tile(shared);
    const int head = blockIdx.y, batch = blockIdx.z, kv = head / (p.heads / p.kv_heads);
    const int i0 = blockIdx.x * F::QUERIES;
    const Band band(p);
    int first, end;
    band.keys(i0, min(i0 + F::QUERIES, p.seq_q), p.seq_k, first, end);
    first -= first % TILE;

    const float* k = plane<float>(p.k, batch, kv);
    const float* v = plane<float>(p.v, batch, kv);
    load_tile<D, F::THREADS, F::QUERIES>(tile.q, plane<float>(p.q, batch, head), p.q.seq, i0,
                                         p.seq_q, p.head_dim);
    if (first < end) load_tile<D, F::THREADS>(tile.k, k, p.k.seq, first, p.seq_k, p.head_dim);
    copy_async_commit();

    float acc[F::ROWS][F::WIDTH] = {};
    float maximum[F::ROWS], sum[F::ROWS] = {};
#pragma unroll
    for (int r = 0; r < F::ROWS; ++r) maximum[r] = negative_infinity();

    for (int j0 = first; j0 < end; j0 += TILE) {
        copy_async_wait<0>();
        __syncthreads();  // K is here, and V has been used
        load_tile<D, F::THREADS>(tile.v, v, p.v.seq, j0, p.seq_k, p.head_dim_v);
        copy_async_commit();

        float s[F::ROWS][4] = {};
        tile.scores(p, band, i0, j0, s);
#pragma unroll
        for (int r = 0; r < F::ROWS; ++r) {
            float above = fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3]));
            above = fmaxf(maximum[r], half_warp_max(above));
            // No key seen so far: any finite shift makes exp2(-inf) = 0.
            const float shift = above == negative_infinity() ? 0.f : above;
            const float decay = exp2f(maximum[r] - shift);
            maximum[r] = above;
            sum[r] *= decay;
#pragma unroll
            for (int c = 0; c < F::WIDTH; ++c) acc[r][c] *= decay;
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const float probability = exp2f(s[r][c] - shift);
                sum[r] += probability;
                tile.probabilities[(tile.ty + r * F::ROW_STEP) * SCORE_ROW + tile.tx + c * 16] =
                    probability;
            }
        }
        copy_async_wait<0>();
        __syncthreads();  // V and the probabilities are here, and K has been used
        if (j0 + TILE < end)
            load_tile<D, F::THREADS>(tile.k, k, p.k.seq, j0 + TILE, p.seq_k, p.head_dim);
        copy_async_commit();
        tile.add_values(acc);
    }

    copy_async_wait<0>();
    float* out = plane<float>(p.out, batch, head);
    float* lse = rows_of(p.lse, p, batch, head);
#pragma unroll
    for (int r = 0; r < F::ROWS; ++r) {
        const int i = i0 + tile.ty + r * F::ROW_STEP;
        const float total = half_warp_sum(sum[r]);
        if (i >= p.seq_q) continue;
        const float inverse = total > 0.f ? 1.f / total : 0.f;
        if (tile.tx == 0)
            lse[i] = total > 0.f ? LN2 * maximum[r] + logf(total) : negative_infinity();
#pragma unroll
        for (int c = 0; c < F::WIDTH; c += 2) {
            const int d = tile.column(c);
            if (d < p.head_dim_v)
                *reinterpret_cast<float2*>(out + i * p.out.seq + d) =
                    make_float2(acc[r][c] * inverse, acc[r][c + 1] * inverse);
        }
    }
}

template <int D>
__device__ __forceinline__ void backward(const Problem& p) {
    extern __shared__ __align__(16) float shared[];
    Backward<D> tiles(shared);
    tiles.key_tile(p, blockIdx.z, blockIdx.y, blockIdx.x);
}

}  // namespace

SIMT_PREPARE(flash_simt_prepare)

#define FLASH_SIMT(D, FORWARD_BYTES, BACKWARD_BLOCK, BACKWARD_BYTES)                    \
    static_assert(Forward<D>::QUERIES == 128, "queries");                               \
    static_assert(TILE == 64, "keys");                                                  \
    static_assert(Forward<D>::THREADS == 256, "threads");                               \
    static_assert(Forward<D>::SHARED_BYTES == FORWARD_BYTES, "shared_bytes");           \
    extern "C" __global__ void __launch_bounds__(Forward<D>::THREADS, D == 128 ? 1 : 2) \
        flash_simt_forward_f32_d##D(const Problem p) {                                  \
        forward<D>(p);                                                                  \
    }                                                                                   \
    SIMT_BACKWARD(flash_simt_backward_f32_d##D, backward, D, BACKWARD_BLOCK, BACKWARD_BYTES)

FLASH_SIMT(32, 73728, 128, 74240)
FLASH_SIMT(64, 106496, 256, 107008)
FLASH_SIMT(128, 172032, 256, 172544)
