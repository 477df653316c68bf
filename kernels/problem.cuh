// The argument of every attention kernel here, and its layout.
//
// One plain struct, passed by value as the only kernel argument, so that a host
// in any language can launch any variant: fill `Problem`, pick the entry point by
// dtype and head_dim, launch. Layout is that of a C struct with 8-byte pointers
// and strides first, 4-byte fields last; without padding. The figures beside the
// fields are their offsets in bytes.
//
// Every file but the flash_wgmma ones compiles for sm_80 and later. A kernel whose dynamic
// shared memory is more than the device lends a block (opt-in: 166912 bytes on sm_80,
// 232448 on sm_90 and sm_100) cannot be launched there; heads of files say which.
//
// softmax(mask(q kᵀ · scale)) v, with q [batch, seq_q, heads, head_dim],
// k [batch, seq_k, kv_heads, head_dim], v [.., head_dim_v] in any order of batch,
// seq and head (element strides); the last axis is contiguous. Query head h reads
// key-value head h / (heads / kv_heads). A query that sees no key has out = 0,
// lse = -inf, and gives no gradient. All sizes are at least 1, kv_heads divides heads,
// and batch, heads and batch·heads are below 65536 (they are grid axes).
#pragma once

#include "device.cuh"

/// A tensor on the device: where it starts, and its strides in elements.
struct Tensor {
    void* data;       //  0
    long long batch;  //  8
    long long seq;    // 16
    long long head;   // 24
};
static_assert(sizeof(Tensor) == 32, "hosts fill this field by field");

struct Problem {
    Tensor q, k, v, out;         //   0,  32,  64,  96; out: written by forward, read by backward
    Tensor dout, dq, dk, dv;     // 128, 160, 192, 224; backward only
    float* lse;                  // 256  [batch, heads, seq_q], ln Σ exp(score); of forward
    float* delta;                // 264  [batch, heads, seq_q], Σ out ∘ dout; scratch of backward
    float* workspace;            // 272  see each kernel's contract; may be null where none is asked
    int batch, heads, kv_heads;  // 280, 284, 288
    int seq_q, seq_k;            // 292, 296
    int head_dim, head_dim_v;    // 300, 304
    int mask_left, mask_right;   // 308, 312; -1: unbounded
    int mask_align;              // 316; 0: top-left, 1: bottom-right
    int num_splits;              // 320; of the key axis; read by split_key and split_kv alone
    float scale;                 // 324; 1 / sqrt(head_dim)
};
static_assert(sizeof(Problem) == 328, "hosts fill this field by field");

/// Query i sees key j if and only if i - left <= j - offset <= i + right. Held as
/// the difference j - i, unbounded sides as values that no difference reaches.
struct Band {
    int low, high;  // low <= j - i <= high

    __device__ __forceinline__ explicit Band(const Problem& p) {
        // No index reaches 2^30, so sums with these do not overflow.
        const int offset = p.mask_align ? p.seq_k - p.seq_q : 0;
        low = p.mask_left < 0 ? -(1 << 30) : offset - min(p.mask_left, 1 << 29);
        high = p.mask_right < 0 ? 1 << 30 : offset + min(p.mask_right, 1 << 29);
    }
    __device__ __forceinline__ bool sees(int i, int j) const {
        return j - i >= low && j - i <= high;
    }
    /// Keys that some query of [i0, i1) sees: [first, end), possibly empty.
    __device__ __forceinline__ void keys(int i0, int i1, int seq_k, int& first, int& end) const {
        first = max(i0 + low, 0);
        end = min(i1 + high, seq_k);
    }
    /// Queries that see some key of [j0, j1): [first, end), possibly empty.
    __device__ __forceinline__ void queries(int j0, int j1, int seq_q, int& first, int& end) const {
        first = max(j0 - high, 0);
        end = min(j1 - low, seq_q);
    }
    /// True when every query of [i0, i1) sees every key of [j0, j1).
    __device__ __forceinline__ bool covers(int i0, int i1, int j0, int j1) const {
        return j0 - (i1 - 1) >= low && (j1 - 1) - i0 <= high;
    }
};

template <typename T>
__device__ __forceinline__ T* plane(const Tensor& t, int batch, int head) {
    return static_cast<T*>(t.data) + batch * t.batch + head * t.head;
}

/// Start of row 0 of a [batch, heads, seq_q] array of floats.
__device__ __forceinline__ float* rows_of(float* base, const Problem& p, int batch, int head) {
    return base + (static_cast<long long>(batch) * p.heads + head) * p.seq_q;
}

/// delta = Σ out ∘ dout of one query, by one warp.
template <typename T>
__device__ __forceinline__ float row_delta(const Problem& p, int batch, int head, int i, int lane) {
    const T* out = plane<T>(p.out, batch, head) + i * p.out.seq;
    const T* dout = plane<T>(p.dout, batch, head) + i * p.dout.seq;
    float sum = 0.f;
    for (int d = lane; d < p.head_dim_v; d += 32) sum += to_float(out[d]) * to_float(dout[d]);
    return warp_sum(sum);
}
