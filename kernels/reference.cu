// The reference in double precision, for problems too large to recompute on a processor:
// the definition of attention/reference.rs of crates/worker on the device. No result depends on the
// kernels under test, nor on the order of blocks: nothing is added atomically.
//
// Inputs are read in the storage type that the tested kernel was given, everything after
// that is double: products, exponentials, sums, and the scale 1/√head_dim, which is taken
// from head_dim and not from the float in `Problem`. Each of out, dq, dk and dv is a weighted
// sum of rows,
//     out_i = Σ_j p_ij v_j      dq_i = Σ_j ds_ij k_j / √head_dim
//     dv_j  = Σ_i p_ij dout_i   dk_j = Σ_i ds_ij q_i / √head_dim
//
// with p = exp(score - lse) and ds = p (dout·v - delta) (Dao et al., FlashAttention,
// arXiv:2205.14135, appendix B.2): one kernel template makes all four, and recomputes the
// weights for each. That is 11 products for the 5 of a backward and forward that share, which
// buys one short piece of code that is right or wrong everywhere.
//
// Launch contract, with contracts.toml; the dtype is the storage type of q, k, v and dout
//
//   forward, in this order
//     lse    grid (ceil(seq_q / queries), batch·heads, 1)
//     out    grid (ceil(seq_q / queries), batch·heads, ceil(head_dim_v / columns))
//   backward, delta first, the others in any order; reads forward's out and lse
//     delta  grid (ceil(seq_q / queries), batch·heads, 1)
//     dq     grid (ceil(seq_q / queries), batch·heads, ceil(head_dim / columns))
//     dk     grid (ceil(seq_k / keys), batch·kv_heads, ceil(head_dim / columns))
//     dv     grid (ceil(seq_k / keys), batch·kv_heads, ceil(head_dim_v / columns))
//   arguments: `Problem` and `Reference`, both by value. Of Problem: q, k, v, sizes and mask;
//     backward dout as well; nothing else of it is read, and nothing written. Any head_dim
//     and head_dim_v (meant for up to 256), any strides and alignment.
//
//   difference, of one result and its reference: grid (any number of blocks >= 1, 1, 1)
//   argument: `Difference` by value; the dtype is the result's. Block b writes
//     partials[4 b + ..]: 0 the sum of squared differences, 1 the sum of squared references,
//     2 the largest absolute difference, 3 the number of results that are not finite, left
//     out of 0 and 2. The host adds up 0, 1 and 3 and takes the largest of 2.

#include "problem.cuh"

/// Dense results, in logical order. What a launch neither reads nor writes may be null.
struct Reference {
    double* out;    //  0  [batch, seq_q, heads, head_dim_v]; 0 for a query that sees no key
    double* lse;    //  8  [batch, heads, seq_q]; -inf for a query that sees no key
    double* delta;  // 16  [batch, heads, seq_q]; scratch of backward
    double* dq;     // 24  [batch, seq_q, heads, head_dim]
    double* dk;     // 32  [batch, seq_k, kv_heads, head_dim], summed over the group
    double* dv;     // 40  [batch, seq_k, kv_heads, head_dim_v], likewise
};
static_assert(sizeof(Reference) == 48, "hosts fill this field by field");

struct Difference {
    Tensor result;               //  0  data, then element strides of batch, seq and head
    const double* reference;     // 32  [batch, seq, heads, dim], dense
    double* partials;            // 40  [gridDim.x, 4]
    int batch, seq, heads, dim;  // 48, 52, 56, 60
};
static_assert(sizeof(Difference) == 64, "hosts fill this field by field");

namespace {

constexpr int THREADS = 256;  // 16 × 16, each with rows ty + 16 r and columns tx + 16 c
constexpr int TILE = 64;      // rows of a tile, of queries and of keys
constexpr int STEP = 32;      // what one round in shared memory contracts
constexpr int COLUMNS = 128;  // of head_dim, that one block gives
/// Doubles from one row of a transposed tile to the next: odd, so that the lanes that write
/// down a column meet in no bank.
constexpr int PITCH = TILE + 1;
constexpr int WEIGHTS = TILE * TILE;
constexpr int OPERAND = STEP * PITCH;
static_assert(2 * OPERAND >= STEP * COLUMNS, "values take the place of both operands");
constexpr int SHARED_BYTES = 8 * (WEIGHTS + 2 * OPERAND);

__device__ __forceinline__ double minus_infinity() {
    return __longlong_as_double(0xfff0000000000000ll);
}

__device__ __forceinline__ double scale_of(const Problem& p) {
    return 1.0 / sqrt(static_cast<double>(p.head_dim));
}

/// Rows of one plane, from the first of a tile on.
template <typename T>
struct Rows {
    const T* data;
    long long stride;
    int rows, columns;  // how many exist; zeros stand in for the others

    __device__ __forceinline__ Rows(const Tensor& t, int batch, int head, int first, int end,
                                    int columns)
        : data(plane<T>(t, batch, head) + first * t.seq),
          stride(t.seq),
          rows(end - first),
          columns(columns) {}

    __device__ __forceinline__ double at(int row, int column) const {
        const bool inside = row < rows && column < columns;
        return inside ? static_cast<double>(to_float(data[row * stride + column])) : 0.0;
    }
};

/// Columns [column0, column0 + STEP) of TILE rows as a [STEP][PITCH] tile.
template <typename T>
__device__ __forceinline__ void load_transposed(double* to, const Rows<T>& from, int column0) {
    const int column = threadIdx.x % STEP, row = threadIdx.x / STEP;
#pragma unroll
    for (int part = 0; part < TILE; part += THREADS / STEP)
        to[column * PITCH + row + part] = from.at(row + part, column0 + column);
}

/// Rows [row0, row0 + STEP) and columns [column0, column0 + COLUMNS) as [STEP][COLUMNS].
template <typename T>
__device__ __forceinline__ void load_rows(double* to, const Rows<T>& from, int row0, int column0) {
    const int column = threadIdx.x % COLUMNS, row = threadIdx.x / COLUMNS;
#pragma unroll
    for (int part = 0; part < STEP; part += THREADS / COLUMNS)
        to[(row + part) * COLUMNS + column] = from.at(row0 + row + part, column0 + column);
}

/// acc[r][c] += Σ_k a[k][16 r] · b[k][16 c] over STEP rows of both.
template <int C, int WIDTH>
__device__ __forceinline__ void multiply(double (&acc)[4][WIDTH], const double* a, int a_pitch,
                                         const double* b, int b_pitch) {
#pragma unroll 4
    for (int k = 0; k < STEP; ++k) {
        double as[4], bs[C];
#pragma unroll
        for (int r = 0; r < 4; ++r) as[r] = a[k * a_pitch + 16 * r];
#pragma unroll
        for (int c = 0; c < C; ++c) bs[c] = b[k * b_pitch + 16 * c];
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int c = 0; c < C; ++c) acc[r][c] = fma(as[r], bs[c], acc[r][c]);
    }
}

/// acc[r][c] = a_row · b_row, for row ty + 16 r of `a` and row tx + 16 c of `b`.
template <typename T>
__device__ __forceinline__ void multiply_rows(double (&acc)[4][4], const Rows<T>& a,
                                              const Rows<T>& b, double* operands) {
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) acc[r][c] = 0.0;
    for (int column = 0; column < a.columns; column += STEP) {
        __syncthreads();  // what was here has been used
        load_transposed(operands, a, column);
        load_transposed(operands + OPERAND, b, column);
        __syncthreads();
        multiply<4>(acc, operands + threadIdx.x / 16, PITCH, operands + OPERAND + threadIdx.x % 16,
                    PITCH);
    }
}

/// ln Σ exp(score) of 64 queries. Each thread keeps a maximum and a sum of the keys that
/// are its own; a row's 16 threads meet at the end.
template <typename T>
__device__ __forceinline__ void log_sum_exp(const Problem& p, const Reference& results) {
    extern __shared__ double shared[];
    const int batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
    const int kv = head / (p.heads / p.kv_heads), i0 = blockIdx.x * TILE;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const double scale = scale_of(p);
    const Band band(p);
    int first, end;
    band.keys(i0, min(i0 + TILE, p.seq_q), p.seq_k, first, end);
    const Rows<T> q(p.q, batch, head, i0, p.seq_q, p.head_dim);

    double maximum[4], sum[4] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) maximum[r] = minus_infinity();
    for (int j0 = first - first % TILE; j0 < end; j0 += TILE) {
        const Rows<T> k(p.k, batch, kv, j0, p.seq_k, p.head_dim);
        double s[4][4];
        multiply_rows(s, q, k, shared + WEIGHTS);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            double above = maximum[r];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int j = j0 + tx + 16 * c;
                const bool seen = j < p.seq_k && band.sees(i0 + ty + 16 * r, j);
                s[r][c] = seen ? s[r][c] * scale : minus_infinity();
                above = fmax(above, s[r][c]);
            }
            // No key so far: any finite shift makes exp(-inf) = 0.
            const double shift = above == minus_infinity() ? 0.0 : above;
            sum[r] *= exp(maximum[r] - shift);
            maximum[r] = above;
#pragma unroll
            for (int c = 0; c < 4; ++c) sum[r] += exp(s[r][c] - shift);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int step = 8; step > 0; step >>= 1) {
            const double other = __shfl_xor_sync(0xffffffffu, maximum[r], step);
            const double other_sum = __shfl_xor_sync(0xffffffffu, sum[r], step);
            const double above = fmax(maximum[r], other);
            const double shift = above == minus_infinity() ? 0.0 : above;
            sum[r] = sum[r] * exp(maximum[r] - shift) + other_sum * exp(other - shift);
            maximum[r] = above;
        }
        const int i = i0 + ty + 16 * r;
        if (tx == 0 && i < p.seq_q)
            results.lse[static_cast<long long>(blockIdx.y) * p.seq_q + i] =
                sum[r] > 0.0 ? maximum[r] + log(sum[r]) : minus_infinity();
    }
}

/// delta = Σ out ∘ dout, a warp a query.
template <typename T>
__device__ __forceinline__ void row_deltas(const Problem& p, const Reference& results) {
    const int i = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
    if (i >= p.seq_q) return;
    const T* dout = plane<T>(p.dout, batch, head) + i * p.dout.seq;
    const long long row = (static_cast<long long>(batch) * p.seq_q + i) * p.heads + head;
    double sum = 0.0;
    for (int d = lane; d < p.head_dim_v; d += 32)
        sum = fma(results.out[row * p.head_dim_v + d], static_cast<double>(to_float(dout[d])), sum);
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) results.delta[static_cast<long long>(blockIdx.y) * p.seq_q + i] = sum;
}

enum class Result { out, dq, dk, dv };

/// One result: for its 64 rows, the sum over all rows of the other side that the mask lets
/// them meet, weighted with p (out, dv) or ds (dq, dk).
template <typename T, Result RESULT>
__device__ __forceinline__ void weighted_sum(const Problem& p, const Reference& results) {
    constexpr bool OF_QUERIES = RESULT == Result::out || RESULT == Result::dq;
    constexpr bool GRADIENT = RESULT == Result::dq || RESULT == Result::dk;
    extern __shared__ double shared[];
    double* const weights = shared;  // [row of the other side][own row]
    double* const operands = shared + WEIGHTS;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int group = p.heads / p.kv_heads, own_heads = OF_QUERIES ? p.heads : p.kv_heads;
    const int batch = blockIdx.y / own_heads, own_head = blockIdx.y % own_heads;
    const int kv = OF_QUERIES ? own_head / group : own_head;
    const int own0 = blockIdx.x * TILE, column0 = blockIdx.z * COLUMNS;
    const int own_rows = OF_QUERIES ? p.seq_q : p.seq_k;
    const int columns = GRADIENT ? p.head_dim : p.head_dim_v;
    const double scale = scale_of(p);
    const Band band(p);
    int first, end;
    if (OF_QUERIES)
        band.keys(own0, min(own0 + TILE, p.seq_q), p.seq_k, first, end);
    else
        band.queries(own0, min(own0 + TILE, p.seq_k), p.seq_q, first, end);
    const int first_tile = first - first % TILE;

    double acc[4][COLUMNS / 16] = {};
    const int first_head = OF_QUERIES ? own_head : kv * group;
    for (int head = first_head; head < first_head + (OF_QUERIES ? 1 : group); ++head) {
        const long long row = (static_cast<long long>(batch) * p.heads + head) * p.seq_q;
        for (int other0 = first_tile; other0 < end; other0 += TILE) {
            const int i0 = OF_QUERIES ? own0 : other0, j0 = OF_QUERIES ? other0 : own0;
            const Rows<T> q(p.q, batch, head, i0, p.seq_q, p.head_dim);
            const Rows<T> k(p.k, batch, kv, j0, p.seq_k, p.head_dim);
            const Rows<T> v(p.v, batch, kv, j0, p.seq_k, p.head_dim_v);
            // For out this is not an input: the address is formed and nothing read.
            const Rows<T> dout(p.dout, batch, head, i0, p.seq_q, p.head_dim_v);
            double s[4][4];
            multiply_rows(s, OF_QUERIES ? k : q, OF_QUERIES ? q : k, operands);
#pragma unroll
            for (int r = 0; r < 4; ++r)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const int i = i0 + (OF_QUERIES ? tx + 16 * c : ty + 16 * r);
                    const int j = j0 + (OF_QUERIES ? ty + 16 * r : tx + 16 * c);
                    const bool seen = i < p.seq_q && j < p.seq_k && band.sees(i, j);
                    weights[(ty + 16 * r) * TILE + tx + 16 * c] =
                        seen ? exp(s[r][c] * scale - results.lse[row + i]) : 0.0;
                }
            if constexpr (GRADIENT) {
                multiply_rows(s, OF_QUERIES ? v : dout, OF_QUERIES ? dout : v, operands);
#pragma unroll
                for (int r = 0; r < 4; ++r)
#pragma unroll
                    for (int c = 0; c < 4; ++c) {
                        const int i = i0 + (OF_QUERIES ? tx + 16 * c : ty + 16 * r);
                        const double delta = i < p.seq_q ? results.delta[row + i] : 0.0;
                        weights[(ty + 16 * r) * TILE + tx + 16 * c] *= (s[r][c] - delta) * scale;
                    }
            }
            const Rows<T>& values = RESULT == Result::out  ? v
                                    : RESULT == Result::dq ? k
                                    : RESULT == Result::dk ? q
                                                           : dout;
            for (int k0 = 0; k0 < TILE; k0 += STEP) {
                __syncthreads();  // the operands have been used
                load_rows(operands, values, k0, column0);
                __syncthreads();  // they and the weights are here
                const double* a = weights + k0 * TILE + ty;
                if (columns - column0 > COLUMNS / 2)
                    multiply<COLUMNS / 16>(acc, a, TILE, operands + tx, COLUMNS);
                else
                    multiply<COLUMNS / 32>(acc, a, TILE, operands + tx, COLUMNS);
            }
            __syncthreads();  // the weights have been used
        }
    }

    double* const to = RESULT == Result::out  ? results.out
                       : RESULT == Result::dq ? results.dq
                       : RESULT == Result::dk ? results.dk
                                              : results.dv;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int own = own0 + ty + 16 * r;
        if (own >= own_rows) continue;
        const long long at =
            ((static_cast<long long>(batch) * own_rows + own) * own_heads + own_head) * columns;
#pragma unroll
        for (int c = 0; c < COLUMNS / 16; ++c) {
            const int column = column0 + tx + 16 * c;
            if (column < columns) to[at + column] = acc[r][c];
        }
    }
}

/// Joins the threads' figures in a fixed order, and writes the block's to `to`.
__device__ __forceinline__ void reduce(const double (&figures)[4], double* to) {
    __shared__ double partial[THREADS][4];
#pragma unroll
    for (int f = 0; f < 4; ++f) partial[threadIdx.x][f] = figures[f];
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        double* const own = partial[threadIdx.x];
        const double* const other = partial[threadIdx.x + half];
        own[0] += other[0];
        own[1] += other[1];
        own[2] = fmax(own[2], other[2]);
        own[3] += other[3];
    }
    if (threadIdx.x == 0)
        for (int f = 0; f < 4; ++f) to[f] = partial[0][f];
}

template <typename T>
__device__ __forceinline__ void difference(const Difference& d) {
    const long long row_elements = static_cast<long long>(d.heads) * d.dim;
    const long long elements = static_cast<long long>(d.batch) * d.seq * row_elements;
    const long long step = static_cast<long long>(gridDim.x) * THREADS;
    double figures[4] = {};
    for (long long index = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
         index < elements; index += step) {
        const long long row = index / row_elements, within = index % row_elements;
        const int batch = static_cast<int>(row / d.seq);
        const int head = static_cast<int>(within / d.dim);
        const float found =
            to_float(plane<T>(d.result, batch, head)[row % d.seq * d.result.seq + within % d.dim]);
        const double right = d.reference[index];
        figures[1] = fma(right, right, figures[1]);
        if (!isfinite(found)) {
            figures[3] += 1.0;
            continue;
        }
        const double off = static_cast<double>(found) - right;
        figures[0] = fma(off, off, figures[0]);
        figures[2] = fmax(figures[2], fabs(off));
    }
    reduce(figures, d.partials + blockIdx.x * 4ll);
}

}  // namespace

#define REFERENCE(NAME, BODY)                                        \
    static_assert(THREADS == 256, "threads");                        \
    extern "C" __global__ void __launch_bounds__(THREADS)            \
        reference_##NAME(const Problem p, const Reference results) { \
        BODY(p, results);                                            \
    }
#define REFERENCE_BY_TILES(NAME, BODY)                    \
    static_assert(TILE == 64, "queries");                 \
    static_assert(TILE == 64, "keys");                    \
    static_assert(SHARED_BYTES == 66048, "shared_bytes"); \
    REFERENCE(NAME, BODY)
#define REFERENCE_SUM(NAME, DTYPE, T)         \
    static_assert(COLUMNS == 128, "columns"); \
    REFERENCE_BY_TILES(NAME##_##DTYPE, (weighted_sum<T, Result::NAME>))
#define REFERENCE_OF(DTYPE, T)                                                                     \
    REFERENCE_BY_TILES(lse_##DTYPE, log_sum_exp<T>)                                                \
    REFERENCE_SUM(out, DTYPE, T)                                                                   \
    static_assert(THREADS / 32 == 8, "queries");                                                   \
    REFERENCE(delta_##DTYPE, row_deltas<T>)                                                        \
    REFERENCE_SUM(dq, DTYPE, T)                                                                    \
    REFERENCE_SUM(dk, DTYPE, T)                                                                    \
    REFERENCE_SUM(dv, DTYPE, T)                                                                    \
    static_assert(THREADS == 256, "threads");                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS) difference_##DTYPE(const Difference d) { \
        difference<T>(d);                                                                          \
    }

REFERENCE_OF(f32, float)
REFERENCE_OF(f16, __half)
REFERENCE_OF(bf16, __nv_bfloat16)
