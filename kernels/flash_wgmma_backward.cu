// Attention backward for Hopper: the five products of FlashAttention-2's backward (Dao 2023,
// arXiv:2307.08691, section 3.1) by wgmma, their operands brought by TMA.
//
// A block owns 128 keys. One warpgroup only copies: K and V once, then a ring of tiles of
// queries, with their dO, lse and delta. The two others compute, 64 keys each, and keep
// their dK and dV in registers. Scores come transposed, [keys, queries], so that P and dS
// become the first operands of dV = P^T dO and dK = dS^T Q without leaving registers; only dS
// also goes through shared memory, for dQ = dS K, of which each warpgroup makes one
// 64 x 64 square. Products run behind what the threads do: dP behind the exponentials, dV
// behind dS, dK behind the sending of dQ (the idea of FlashAttention-3, Shah et al. 2024,
// arXiv:2407.08608).
//
// dQ gathers from all blocks by 16-byte atomic adds in a float32 workspace that has the
// order of the fragments; the last kernel puts it in its place.
//
// Launch contract, with contracts.toml, in this order; D is the compiled head_dim, Q the queries
// of a tile; reads out and lse of forward:
//
//   prepare    grid (ceil(seq_q / Q), heads, batch)
//   backward   grid (ceil(seq_k / keys), kv_heads, batch)
//   finish     grid (ceil(seq_q / Q), heads, batch)
//
//   arguments, by value: of the first and last, `Problem`; of the second CUtensorMap q, k, v,
//            dout, and then `Problem`. Maps as at the head of flash_wgmma.cu, with box
//            (64, Q, D / 64, 1, 1) for q and dout, (64, keys, D / 64, 1, 1) for k and v
//   limits   head_dim and head_dim_v equal to D; every stride of a tensor a multiple of 8
//            elements, data 16-byte aligned; seq_q and seq_k below 2^29; fewer than 2^31
//            blocks. p.delta is not used
//   workspace  (4 * Q * D + 8 * Q) * batch * heads * ceil(seq_q / Q) bytes, 16-byte aligned, in
//            any state: dQ, then [batch, heads, tiles][2][Q] of lse * log2(e) and delta
//   order    dq is summed in no fixed order
#include "wgmma_backward.cuh"

namespace {

using namespace hopper;

/// One thread: keys and values, then the ring of queries.
template <typename C>
__device__ __forceinline__ void produce(const Shared<C>& shared, const Problem& p,
                                        const TensorMap* map_q, const TensorMap* map_k,
                                        const TensorMap* map_v, const TensorMap* map_dout) {
    Walk<C> walk(p, Band(p));
    if (walk.steps == 0) return;
    barrier_expect(shared.keys_full(), 2 * C::KEY_BYTES);
    tensor_load(shared.k(), map_k, shared.keys_full(), walk.first_key, walk.kv, walk.batch);
    tensor_load(shared.v(), map_v, shared.keys_full(), walk.first_key, walk.kv, walk.batch);
    for (int step = 0; step < walk.steps; ++step, walk.next()) {
        const int stage = step % STAGES;
        const unsigned full = shared.full(stage);
        barrier_wait(shared.empty(stage), step / STAGES % 2 ^ 1);
        barrier_expect(full, 2 * C::QUERY_BYTES + C::ROW_BYTES);
        const int first_query = walk.tile * C::QUERIES;
        tensor_load(shared.q(stage), map_q, full, first_query, walk.head, walk.batch);
        const Workspace<C> workspace(p, walk.batch, walk.head, walk.tile);
        bulk_load(shared.rows(stage), workspace.rows, C::ROW_BYTES, full);
        tensor_load(shared.dout(stage), map_dout, full, first_query, walk.head, walk.batch);
    }
}

/// A pair of neighbouring queries' values.
__device__ __forceinline__ float2 load_pair(unsigned shared) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x.x), "=f"(x.y)
                 : "r"(shared)
                 : "memory");
    return x;
}

/// Zeros where a query does not see a key. Of thread (warp, lane): rows are keys `key` and
/// key + 8, columns the queries `query` + 8 j + {0, 1}.
template <int QUERIES>
__device__ __forceinline__ void mask_probabilities(float (&s)[QUERIES / 2], const Band& band,
                                                   int key, int query, int seq_k) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int j = key + 8 * half;
        // Queries that see key j, relative to `query`; none for a key past the end.
        const int low = j < seq_k ? j - band.high - query : QUERIES;
        const int high = j - band.low - query;
#pragma unroll
        for (int i = 0; i < QUERIES / 4; ++i) {
            const int column = i / 2 * 8 + i % 2;
            if (column < low || column > high) s[i / 2 * 4 + half * 2 + i % 2] = 0.f;
        }
    }
}

/// Writes 64 rows of dK or dV.
template <typename C>
__device__ __forceinline__ void store(const Tensor& gradient, const Problem& p, const Walk<C>& walk,
                                      int row, float factor, const float (&x)[C::D / 2]) {
    using T = typename C::T;
    T* const to = plane<T>(gradient, walk.batch, walk.kv) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int j = row + 8 * half;
        if (j >= p.seq_k) continue;
#pragma unroll
        for (int i = 0; i < C::D / 8; ++i)
            *reinterpret_cast<unsigned*>(to + j * gradient.seq + i * 8) =
                pack<T>(x[4 * i + 2 * half] * factor, x[4 * i + 2 * half + 1] * factor);
    }
}

/// A warpgroup that computes: 64 keys.
template <typename C>
__device__ __forceinline__ void consume(const Shared<C>& shared, const Problem& p, int consumer) {
    using T = typename C::T;
    constexpr int D = C::D, QUERIES = C::QUERIES;
    const int thread = threadIdx.x % WARPGROUP, warp = thread / 32, lane = thread % 32;
    const Band band(p);
    Walk<C> walk(p, band);
    const int key = walk.first_key + consumer * 64 + warp * 16 + lane / 4;
    const float scale_log2 = p.scale * LOG2E;

    float dk[D / 2], dv[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; ++i) dk[i] = dv[i] = 0.f;

    // keys . queries^T: own 64 rows of K or V, all queries of the tile.
    const auto issue_scores = [&](float (&x)[QUERIES / 2], unsigned keys, unsigned queries) {
        const unsigned long long a = operand(keys + consumer * 64 * 128, 0),
                                 b = operand(queries, 0);
        hold(x);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < D / 16; ++step)
            wgmma_ss<T, QUERIES>(x, advance(a, step / 4 * KEYS * 128 + step % 4 * 32),
                                 advance(b, step / 4 * QUERIES * 128 + step % 4 * 32), step != 0);
        wgmma_commit();
    };
    // Own 64 keys of dK or dV += fragments . queries.
    const auto issue_sum = [&](float (&x)[D / 2], unsigned (&fragments)[QUERIES / 4],
                               unsigned queries) {
        const unsigned long long b = operand(queries, QUERIES * 128);
        hold(x);
        hold(fragments);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < QUERIES / 16; ++step)
            wgmma_rs_transposed<T, D>(x, fragments + 4 * step, advance(b, step * 2048));
        wgmma_commit();
    };
    // One square of dQ = dS . K.
    const auto issue_query_gradient = [&](float (&x)[32], unsigned tile) {
        const unsigned long long a = operand(tile + (C::BESIDE ? 0 : consumer * KEYS * 128), 0);
        const unsigned long long b =
            operand(shared.k() + (C::BESIDE ? consumer * KEYS * 128 : 0), 0);
        hold(x);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step)
            wgmma_ss_transposed<T>(x, advance(a, step * 2048), advance(b, step * 2048), step != 0);
        wgmma_commit();
    };
    // dS of own keys, 16 queries an instruction.
    const auto store_gradients = [&](unsigned tile, const unsigned (&gradients)[QUERIES / 4]) {
        const int row = consumer * 64 + warp * 16 + lane % 16;
#pragma unroll
        for (int i = 0; i < QUERIES / 16; ++i) {
            const int chunk = 2 * i + lane / 16;
            store_matrices(tile + chunk / 8 * KEYS * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16,
                           gradients[4 * i], gradients[4 * i + 1], gradients[4 * i + 2],
                           gradients[4 * i + 3]);
        }
        async_proxy_fence();
    };

    if (walk.steps > 0) barrier_wait(shared.keys_full(), 0);
    for (int step = 0; step < walk.steps; ++step, walk.next()) {
        const int stage = step % STAGES;
        const int first_query = walk.tile * QUERIES;
        const unsigned rows = shared.rows(stage) + lane % 4 * 8;
        // Accumulators of this step alone: what they held before would cost registers.
        float s[QUERIES / 2], dp[QUERIES / 2], square[32];
        barrier_wait(shared.full(stage), step / STAGES % 2);
        issue_scores(s, shared.k(), shared.q(stage));
        issue_scores(dp, shared.v(), shared.dout(stage));
        wgmma_wait<1>();
        hold(s);
#pragma unroll
        for (int i = 0; i < QUERIES / 8; ++i) {
            const float2 shift = load_pair(rows + i * 32);
#pragma unroll
            for (int e = 0; e < 4; ++e)
                s[4 * i + e] =
                    exp2_approx(fmaf(s[4 * i + e], scale_log2, -(e % 2 ? shift.y : shift.x)));
        }
        // Queries past seq_q need no mask: their dO is zero, and so is their dS.
        if (walk.first_key + KEYS > p.seq_k ||
            !band.covers(first_query, first_query + QUERIES, walk.first_key, walk.first_key + KEYS))
            mask_probabilities<QUERIES>(s, band, key, first_query + lane % 4 * 2, p.seq_k);
        unsigned probabilities[QUERIES / 4], gradients[QUERIES / 4];
#pragma unroll
        for (int i = 0; i < QUERIES / 4; ++i) probabilities[i] = pack<T>(s[2 * i], s[2 * i + 1]);
        issue_sum(dv, probabilities, shared.dout(stage));
        wgmma_wait<1>();
        hold(dp);
#pragma unroll
        for (int i = 0; i < QUERIES / 8; ++i) {
            const float2 delta = load_pair(rows + QUERIES * 4 + i * 32);
#pragma unroll
            for (int e = 0; e < 4; ++e) s[4 * i + e] *= dp[4 * i + e] - (e % 2 ? delta.y : delta.x);
        }
#pragma unroll
        for (int i = 0; i < QUERIES / 4; ++i) gradients[i] = pack<T>(s[2 * i], s[2 * i + 1]);
        store_gradients(shared.gradients(step % 2), gradients);
        named_sync(GRADIENT_BARRIER, CONSUMERS * WARPGROUP);  // dS is here, of both
        issue_query_gradient(square, shared.gradients(step % 2));
        issue_sum(dk, gradients, shared.q(stage));
        wgmma_wait<1>();
        hold(dv);
        hold(square);
        hold(probabilities);
        float* const to =
            reinterpret_cast<float*>(Workspace<C>(p, walk.batch, walk.head, walk.tile).dq +
                                     consumer * 8 * WARPGROUP + thread);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            add_float4(to + i * 4 * WARPGROUP,
                       make_float4(square[4 * i] * p.scale, square[4 * i + 1] * p.scale,
                                   square[4 * i + 2] * p.scale, square[4 * i + 3] * p.scale));
        wgmma_wait<0>();
        hold(dk);
        hold(gradients);
        barrier_arrive(shared.empty(stage));  // each for what it has read of lse and delta
    }
    store<C>(p.dv, p, walk, key, 1.f, dv);
    store<C>(p.dk, p, walk, key, p.scale, dk);
}

template <typename C>
__device__ __forceinline__ void backward(const TensorMap* map_q, const TensorMap* map_k,
                                         const TensorMap* map_v, const TensorMap* map_dout,
                                         const Problem& p) {
    extern __shared__ unsigned char dynamic_shared[];
    // The swizzle is a function of the address: blocks start at multiples of 1024 bytes.
    const Shared<C> shared{(shared_address(dynamic_shared) + 1023u) & ~1023u};
    if (threadIdx.x == 0) {
        barrier_init(shared.keys_full(), 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(shared.full(stage), 1);
            barrier_init(shared.empty(stage), CONSUMERS * WARPGROUP);
        }
        barrier_init_fence();
        tensor_prefetch(map_q);
        tensor_prefetch(map_k);
        tensor_prefetch(map_v);
        tensor_prefetch(map_dout);
    }
    __syncthreads();
    const int warpgroup = uniform(threadIdx.x / WARPGROUP);
    if (warpgroup == 0) {
        give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(shared, p, map_q, map_k, map_v, map_dout);
    } else {
        take_registers<CONSUMER_REGISTERS>();
        consume(shared, p, warpgroup - 1);
    }
}

constexpr int SIDE_THREADS = 256;  // of the kernels before and after

/// lse and delta of a tile of queries, and zeros into its part of dQ.
template <typename C>
__device__ __forceinline__ void prepare(const Problem& p) {
    const int head = blockIdx.y, batch = blockIdx.z, lane = threadIdx.x % 32;
    const Workspace<C> workspace(p, batch, head, blockIdx.x);
    for (int row = threadIdx.x / 32; row < C::QUERIES; row += SIDE_THREADS / 32) {
        const int i = blockIdx.x * C::QUERIES + row;
        const bool inside = i < p.seq_q;
        const float delta = inside ? row_delta<typename C::T>(p, batch, head, i, lane) : 0.f;
        if (lane == 0) {
            workspace.rows[row] = inside ? rows_of(p.lse, p, batch, head)[i] * LOG2E : 0.f;
            workspace.rows[C::QUERIES + row] = delta;
        }
    }
    for (int i = threadIdx.x; i < C::QUERIES * C::D / 4; i += SIDE_THREADS)
        workspace.dq[i] = make_float4(0.f, 0.f, 0.f, 0.f);
}

/// The workspace, rounded, into dq.
template <typename C>
__device__ __forceinline__ void finish(const Problem& p) {
    using T = typename C::T;
    const int head = blockIdx.y, batch = blockIdx.z;
    const Workspace<C> workspace(p, batch, head, blockIdx.x);
    T* const dq = plane<T>(p.dq, batch, head);
    const int square = threadIdx.x / WARPGROUP, thread = threadIdx.x % WARPGROUP;
    const int i = blockIdx.x * C::QUERIES + (C::BESIDE ? 0 : square * 64) + thread / 32 * 16 +
                  thread % 32 / 4;
    const int d = (C::BESIDE ? square * 64 : 0) + thread % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const float4 x = workspace.dq[(square * 8 + n) * WARPGROUP + thread];
        if (i < p.seq_q)
            *reinterpret_cast<unsigned*>(dq + i * p.dq.seq + d + n * 8) = pack<T>(x.x, x.y);
        if (i + 8 < p.seq_q)
            *reinterpret_cast<unsigned*>(dq + (i + 8) * p.dq.seq + d + n * 8) = pack<T>(x.z, x.w);
    }
}

}  // namespace

#define FLASH_WGMMA_SIDE(NAME, BODY, T, D, TILE_QUERIES)                               \
    static_assert(Config<T, D>::QUERIES == TILE_QUERIES, "queries");                   \
    static_assert(SIDE_THREADS == 256, "threads");                                     \
    extern "C" __global__ void __launch_bounds__(SIDE_THREADS) NAME(const Problem p) { \
        BODY<Config<T, D>>(p);                                                         \
    }
#define FLASH_WGMMA_BACKWARD(DTYPE, T, D, TILE_QUERIES, SHARED_BYTES)                             \
    FLASH_WGMMA_SIDE(flash_wgmma_prepare_##DTYPE##_d##D, prepare, T, D, TILE_QUERIES)             \
    static_assert(Config<T, D>::QUERIES == TILE_QUERIES, "queries");                              \
    static_assert(KEYS == 128, "keys");                                                           \
    static_assert(THREADS == 384, "threads");                                                     \
    static_assert(Shared<Config<T, D>>::BYTES == SHARED_BYTES, "shared_bytes");                   \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) flash_wgmma_backward_##DTYPE##_d##D( \
        const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,                 \
        const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap dout,              \
        const __grid_constant__ Problem p) {                                                      \
        backward<Config<T, D>>(&q, &k, &v, &dout, p);                                             \
    }                                                                                             \
    FLASH_WGMMA_SIDE(flash_wgmma_finish_##DTYPE##_d##D, finish, T, D, TILE_QUERIES)

FLASH_WGMMA_BACKWARD(bf16, __nv_bfloat16, 64, 128, 166976)
FLASH_WGMMA_BACKWARD(bf16, __nv_bfloat16, 128, 64, 165952)
FLASH_WGMMA_BACKWARD(f16, __half, 64, 128, 166976)
FLASH_WGMMA_BACKWARD(f16, __half, 128, 64, 165952)
