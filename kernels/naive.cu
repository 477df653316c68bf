// Attention as the textbook writes it: the whole seq_q × seq_k score matrix lies in
// global memory between the products. The known slow rung that every fused kernel
// has to beat, and the easiest one to check by eye. One thread per output element,
// no tiling, accumulation in float32 (Vaswani et al., arXiv:1706.03762, eq. 1;
// gradients: Dao et al., arXiv:2205.14135, appendix B.2).
//
// Launch contract, with contracts.toml; any head_dim, head_dim_v, strides and alignment.
// `pairs` = batch·heads·seq_q·seq_k.
//
//   forward, in this order; workspace: 4·pairs bytes
//     scores        grid (ceil(seq_k / keys), seq_q, batch·heads)
//     softmax       grid (seq_q, 1, batch·heads)
//     out           grid (ceil(head_dim_v / columns), seq_q, batch·heads)
//   backward, in this order; workspace: 8·pairs bytes (P, then dS)
//     delta         grid (seq_q, 1, batch·heads)
//     score_grads   grid (ceil(seq_k / keys), seq_q, batch·heads)
//     query_grads   grid (ceil(head_dim / columns), seq_q, batch·heads)
//     key_grads     grid (ceil(max(head_dim, head_dim_v) / columns), seq_k, batch·kv_heads)
//
// Limits: seq_q, seq_k and batch·heads below 65536 (grid y and z).

#include "problem.cuh"

namespace {

constexpr int THREADS = 128;
constexpr int WARP = 32;  // all there is of a block of naive_delta

/// Row i of the score matrix of one head.
__device__ __forceinline__ float* score_row(const Problem& p, int plane_index, int i) {
    return p.workspace + (static_cast<long long>(plane_index) * p.seq_q + i) * p.seq_k;
}

__device__ __forceinline__ float* score_grad_row(const Problem& p, int plane_index, int i) {
    return score_row(p, p.batch * p.heads + plane_index, i);
}

template <typename T>
__device__ __forceinline__ float dot(const T* a, const T* b, int n) {
    float sum = 0.f;
    for (int d = 0; d < n; ++d) sum = fmaf(to_float(a[d]), to_float(b[d]), sum);
    return sum;
}

/// Which batch, head and key-value head a plane of queries is.
struct QueryPlane {
    int index, batch, head, kv;
    __device__ __forceinline__ QueryPlane(const Problem& p, int index) : index(index) {
        batch = index / p.heads;
        head = index % p.heads;
        kv = head / (p.heads / p.kv_heads);
    }
};

template <typename T>
__device__ __forceinline__ float score(const Problem& p, const QueryPlane& at, int i, int j) {
    const T* q = plane<T>(p.q, at.batch, at.head) + i * p.q.seq;
    const T* k = plane<T>(p.k, at.batch, at.kv) + j * p.k.seq;
    return p.scale * dot(q, k, p.head_dim);
}

template <typename T>
__device__ __forceinline__ void scores(const Problem& p) {
    const QueryPlane at(p, blockIdx.z);
    const int i = blockIdx.y, j = blockIdx.x * THREADS + threadIdx.x;
    if (j >= p.seq_k) return;
    const bool seen = Band(p).sees(i, j);
    score_row(p, at.index, i)[j] = seen ? score<T>(p, at, i, j) : negative_infinity();
}

__device__ __forceinline__ float block_reduce(float x, bool maximum) {
    __shared__ float partial[THREADS / 32];
    x = maximum ? warp_max(x) : warp_sum(x);
    __syncthreads();  // the previous reduction has been read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    float result = partial[0];
    for (int w = 1; w < THREADS / 32; ++w)
        result = maximum ? fmaxf(result, partial[w]) : result + partial[w];
    return result;
}

__device__ __forceinline__ void softmax(const Problem& p) {
    const int i = blockIdx.x;
    float* row = score_row(p, blockIdx.z, i);
    float maximum = negative_infinity();
    for (int j = threadIdx.x; j < p.seq_k; j += THREADS) maximum = fmaxf(maximum, row[j]);
    maximum = block_reduce(maximum, true);
    // A row that sees no key: exp(-inf - 0) = 0 everywhere, and no division by 0.
    const float shift = maximum == negative_infinity() ? 0.f : maximum;
    float sum = 0.f;
    for (int j = threadIdx.x; j < p.seq_k; j += THREADS) sum += expf(row[j] - shift);
    sum = block_reduce(sum, false);
    const float inverse = sum > 0.f ? 1.f / sum : 0.f;
    for (int j = threadIdx.x; j < p.seq_k; j += THREADS) row[j] = expf(row[j] - shift) * inverse;
    if (threadIdx.x == 0)
        p.lse[static_cast<long long>(blockIdx.z) * p.seq_q + i] =
            sum > 0.f ? shift + logf(sum) : negative_infinity();
}

template <typename T>
__device__ __forceinline__ void out(const Problem& p) {
    const QueryPlane at(p, blockIdx.z);
    const int i = blockIdx.y, d = blockIdx.x * THREADS + threadIdx.x;
    if (d >= p.head_dim_v) return;
    const float* row = score_row(p, at.index, i);
    const T* v = plane<T>(p.v, at.batch, at.kv) + d;
    float sum = 0.f;
    for (int j = 0; j < p.seq_k; ++j) sum = fmaf(row[j], to_float(v[j * p.v.seq]), sum);
    plane<T>(p.out, at.batch, at.head)[i * p.out.seq + d] = from_float<T>(sum);
}

template <typename T>
__device__ __forceinline__ void delta(const Problem& p) {
    const QueryPlane at(p, blockIdx.z);
    const int i = blockIdx.x;
    const float sum = row_delta<T>(p, at.batch, at.head, i, threadIdx.x);
    if (threadIdx.x == 0) rows_of(p.delta, p, at.batch, at.head)[i] = sum;
}

template <typename T>
__device__ __forceinline__ void score_grads(const Problem& p) {
    const QueryPlane at(p, blockIdx.z);
    const int i = blockIdx.y, j = blockIdx.x * THREADS + threadIdx.x;
    if (j >= p.seq_k) return;
    float probability = 0.f, gradient = 0.f;
    if (Band(p).sees(i, j)) {
        const T* dout = plane<T>(p.dout, at.batch, at.head) + i * p.dout.seq;
        const T* v = plane<T>(p.v, at.batch, at.kv) + j * p.v.seq;
        const float lse = rows_of(p.lse, p, at.batch, at.head)[i];
        const float delta = rows_of(p.delta, p, at.batch, at.head)[i];
        probability = expf(score<T>(p, at, i, j) - lse);
        gradient = probability * (dot(dout, v, p.head_dim_v) - delta);
    }
    score_row(p, at.index, i)[j] = probability;
    score_grad_row(p, at.index, i)[j] = gradient;
}

template <typename T>
__device__ __forceinline__ void query_grads(const Problem& p) {
    const QueryPlane at(p, blockIdx.z);
    const int i = blockIdx.y, d = blockIdx.x * THREADS + threadIdx.x;
    if (d >= p.head_dim) return;
    const float* row = score_grad_row(p, at.index, i);
    const T* k = plane<T>(p.k, at.batch, at.kv) + d;
    float sum = 0.f;
    for (int j = 0; j < p.seq_k; ++j) sum = fmaf(row[j], to_float(k[j * p.k.seq]), sum);
    plane<T>(p.dq, at.batch, at.head)[i * p.dq.seq + d] = from_float<T>(sum * p.scale);
}

template <typename T>
__device__ __forceinline__ void key_grads(const Problem& p) {
    const int batch = blockIdx.z / p.kv_heads, kv = blockIdx.z % p.kv_heads;
    const int j = blockIdx.y, d = blockIdx.x * THREADS + threadIdx.x;
    const int group = p.heads / p.kv_heads;
    float dk = 0.f, dv = 0.f;
    for (int head = kv * group; head < (kv + 1) * group; ++head) {
        const T* q = plane<T>(p.q, batch, head) + d;
        const T* dout = plane<T>(p.dout, batch, head) + d;
        const int index = batch * p.heads + head;
        for (int i = 0; i < p.seq_q; ++i) {
            if (d < p.head_dim)
                dk = fmaf(score_grad_row(p, index, i)[j], to_float(q[i * p.q.seq]), dk);
            if (d < p.head_dim_v)
                dv = fmaf(score_row(p, index, i)[j], to_float(dout[i * p.dout.seq]), dv);
        }
    }
    if (d < p.head_dim) plane<T>(p.dk, batch, kv)[j * p.dk.seq + d] = from_float<T>(dk * p.scale);
    if (d < p.head_dim_v) plane<T>(p.dv, batch, kv)[j * p.dv.seq + d] = from_float<T>(dv);
}

}  // namespace

#define NAIVE(NAME, BODY)                     \
    static_assert(THREADS == 128, "threads"); \
    extern "C" __global__ void naive_##NAME(const Problem p) { BODY(p); }
#define NAIVE_ALONG(AXIS, NAME, BODY)    \
    static_assert(THREADS == 128, AXIS); \
    NAIVE(NAME, BODY)
#define NAIVE_OF(DTYPE, T)                                                           \
    NAIVE_ALONG("keys", scores_##DTYPE, scores<T>)                                   \
    NAIVE(softmax_##DTYPE, softmax)                                                  \
    NAIVE_ALONG("columns", out_##DTYPE, out<T>)                                      \
    static_assert(WARP == 32, "threads");                                            \
    extern "C" __global__ void naive_delta_##DTYPE(const Problem p) { delta<T>(p); } \
    NAIVE_ALONG("keys", score_grads_##DTYPE, score_grads<T>)                         \
    NAIVE_ALONG("columns", query_grads_##DTYPE, query_grads<T>)                      \
    NAIVE_ALONG("columns", key_grads_##DTYPE, key_grads<T>)

NAIVE_OF(f32, float)
NAIVE_OF(f16, __half)
NAIVE_OF(bf16, __nv_bfloat16)
