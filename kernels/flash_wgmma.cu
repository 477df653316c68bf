// Attention forward for Hopper: TMA, warp specialisation, wgmma, softmax in its shadow.
//
// A block computes 128 queries of one head (192 where head_dim is 64). One warpgroup only
// copies: it keeps a ring of key and value tiles in shared memory full. The two (or three)
// others compute, 64 queries each, with the online softmax (Milakov & Gimelshein 2018,
// arXiv:1805.02867; FlashAttention-2, Dao 2023, arXiv:2307.08691): scores of a tile by
// wgmma, running maximum and sum in registers, probabilities rounded in registers to become
// the first operand of the second product. With head_dim 128 a tile costs about half as many
// cycles of exponentials as of matrix products, with 64 as many, so both must run at once.
// As in FlashAttention-3 (Shah et al. 2024, arXiv:2407.08608) that happens twice over:
// within a warpgroup the next tile's QK^T and this tile's PV are in flight while the softmax
// runs, and named barriers make the warpgroups issue their products in turn, each while the
// others are in their softmax.
//
// Tiles are walked from the last key to the first: only the tiles at the ends of the band
// need masking, and tiles that no query of the block sees are never loaded.
//
// Launch contract, with contracts.toml; of a tile with exactly the problem's head_dim
//   grid     x: any number of blocks >= 1, which take the tiles in turns. There are
//            ceil(seq_q / queries) * batch * heads tiles. One block per multiprocessor: the next
//            tile's loads overlap the last tile's epilogue; best for a full mask, and for
//            long sequences. One block a tile: the hardware balances unequal tiles; best
//            for a causal mask over few thousand queries.
//   arguments, in this order and by value, with C types: CUtensorMap q, k, v, out;
//            float* lse; int batch, heads, kv_heads, seq_q, seq_k, band_low, band_high,
//            heads_per_section; float scale_log2. No `Problem`: maps are made on the host,
//            and must be arguments of their own.
//   maps     CU_TENSOR_MAP_DATA_TYPE_{BFLOAT16,FLOAT16}, rank 5, swizzle 128B, interleave
//            none, no OOB NaN fill; dims (64, seq, head_dim / 64, heads, batch), strides of
//            axes 1..4 in bytes (seq stride, 128, head stride, batch stride), element
//            strides 1; box (64, 64, head_dim / 64, 1, 1) for q and out,
//            (64, keys, head_dim / 64, 1, 1) for k and v. So: head dimension contiguous, base
//            addresses and strides multiples of 16 bytes; any layout otherwise.
//   limits   seq_q and seq_k >= 1 and below 2^29, kv_heads divides heads, fewer than 2^30
//            tiles. No workspace.
//   mask     query i sees keys i + band_low <= j <= i + band_high, bounds within +-2^30.
//            Full: -2^30, 2^30. Causal: -2^30, 0 (top-left) or seq_k - seq_q (bottom-right).
//   scale    scale_log2 = softmax scale * log2(e), positive
//   out      in the input dtype, through its map; 0 for a query that sees no key
//   lse      f32 [batch, heads, seq_q], natural logarithm; -inf for such a query
//   order    heads_per_section, 1 .. batch * heads: the tiles of that many heads are taken,
//            longest first, before the next section's. Full mask: 1, so that the blocks at
//            work share keys. Causal: batch * heads with one block per multiprocessor; with
//            one block a tile as many as have their keys and values fit into L2 together.
#include "wgmma_forward.cuh"

namespace {

using namespace hopper;

/// One thread: keeps the ring full.
template <typename C>
__device__ __forceinline__ void produce(const Shared<C>& shared, const Shape& shape,
                                        const TensorMap* map_q, const TensorMap* map_k,
                                        const TensorMap* map_v) {
    using Memory = Shared<C>;
    constexpr int KEYS = C::KEYS;
    const int tiles = count_tiles<C::QUERIES>(shape);
    Ring<C::STAGES> ring;
    unsigned q_parity = 0;
    for (int round = 0, index; (index = tile_of_round(round)) < tiles; ++round) {
        const Tile tile = tile_at<C::QUERIES, KEYS>(index, shape);
        const auto load_queries = [&] {
            for (int consumer = 0; consumer < C::CONSUMERS; ++consumer) {
                barrier_wait(shared.q_empty(consumer), q_parity ^ 1);
                barrier_expect(shared.q_full(consumer), Memory::QUERY_BYTES);
                tensor_load(shared.q(consumer), map_q, shared.q_full(consumer),
                            tile.first_query + consumer * WARPGROUP_ROWS, tile.head, tile.batch);
            }
        };
        for (int n = tile.end - 1; n >= tile.begin; --n) {
            barrier_wait(shared.k_empty(ring.stage), ring.parity ^ 1);
            barrier_expect(shared.k_full(ring.stage), Memory::TILE_BYTES);
            tensor_load(shared.k(ring.stage), map_k, shared.k_full(ring.stage), n * KEYS,
                        tile.kv_head, tile.batch);
            // Behind the first keys: the wait for the last tile's epilogue, which still
            // holds the queries' buffer, then does not hold the keys up.
            if (n == tile.end - 1) load_queries();
            barrier_wait(shared.v_empty(ring.stage), ring.parity ^ 1);
            barrier_expect(shared.v_full(ring.stage), Memory::TILE_BYTES);
            tensor_load(shared.v(ring.stage), map_v, shared.v_full(ring.stage), n * KEYS,
                        tile.kv_head, tile.batch);
            ring.next();
        }
        if (tile.begin >= tile.end) load_queries();
        q_parity ^= 1;
    }
}

/// One step of the online softmax on 2 rows a thread: scores become probabilities relative
/// to exp2(`shift`), `correction` is what earlier sums and outputs must be multiplied by.
/// The sum stays apart in the four threads of a row until the end.
///
/// Any shift gives the same result as long as nothing overflows. A lazy one follows the
/// maximum only when that has grown by more than 2^8 (FlashAttention-4's rule, Zadouri et
/// al. 2026, arXiv:2603.05451), so that after the first tiles outputs hardly ever need to
/// be rescaled; probabilities then reach 256 at most, which f16 holds as exactly as 1.
template <int KEYS, bool LAZY>
__device__ __forceinline__ void softmax_step(float (&s)[KEYS / 2], float (&shift)[2],
                                             float (&row_sum)[2], float (&correction)[2],
                                             float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float top = negative_infinity();
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) top = fmaxf(top, s[i / 2 * 4 + half * 2 + i % 2]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)) * scale_log2;
        const float slack = LAZY ? 8.f : 0.f;
        const float next = top > shift[half] + slack ? top : shift[half];
        // A row that has seen no key yet has shift -inf; any finite number in its place
        // gives exp2(-inf) = 0 below instead of NaN.
        const float finite = next == negative_infinity() ? 0.f : next;
        correction[half] = exp2_approx(shift[half] - finite);
        shift[half] = next;
        float sum = row_sum[half] * correction[half];
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) {
            float& score = s[i / 2 * 4 + half * 2 + i % 2];
            score = exp2_approx(score * scale_log2 - finite);
            sum += score;
        }
        row_sum[half] = sum;
    }
}

/// Divides by the sum, stores the logarithm of the sum, and the output by way of the queries'
/// buffer, from which TMA leaves out rows past the end.
template <typename C>
__device__ __forceinline__ void store_tile(const Shared<C>& shared, const Shape& shape,
                                           int consumer, const Tile& tile, const float (&shift)[2],
                                           const float (&row_sum)[2], const float (&o)[C::D / 2],
                                           const TensorMap* map_out, float* lse) {
    using T = typename C::T;
    const int thread = threadIdx.x % WARPGROUP, lane = thread % 32;
    const int first_row = tile.first_query + consumer * WARPGROUP_ROWS;
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = row_sum[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inverse[half] = sum == 0.f ? 0.f : 1.f / sum;
        const int query = first_row + thread / 32 * 16 + lane / 4 + 8 * half;
        if (lane % 4 == 0 && query < shape.seq_q) {
            const size_t plane = static_cast<size_t>(tile.batch) * shape.heads + tile.head;
            lse[plane * shape.seq_q + query] =
                sum == 0.f ? negative_infinity() : (shift[half] + log2_approx(sum)) * LN2;
        }
    }
    // Every warp is past its last read of the queries.
    named_sync(EPILOGUE_BARRIER + consumer, WARPGROUP);
#pragma unroll
    for (int i = 0; i < C::D / 16; ++i) {
        store_matrices(query_chunk(shared, consumer, 2 * i + lane / 16),
                       pack<T>(o[8 * i] * inverse[0], o[8 * i + 1] * inverse[0]),
                       pack<T>(o[8 * i + 2] * inverse[1], o[8 * i + 3] * inverse[1]),
                       pack<T>(o[8 * i + 4] * inverse[0], o[8 * i + 5] * inverse[0]),
                       pack<T>(o[8 * i + 6] * inverse[1], o[8 * i + 7] * inverse[1]));
    }
    async_proxy_fence();
    named_sync(EPILOGUE_BARRIER + consumer, WARPGROUP);
    if (thread == 0) {
        if (first_row < shape.seq_q)
            tensor_store(map_out, shared.q(consumer), first_row, tile.head, tile.batch);
        tensor_store_wait();
        barrier_arrive(shared.q_empty(consumer));
    }
}

/// A warpgroup that computes.
template <typename C>
__device__ __forceinline__ void consume(const Shared<C>& shared, const Shape& shape, int consumer,
                                        float scale_log2, const TensorMap* map_out, float* lse) {
    using T = typename C::T;
    constexpr int D = C::D, KEYS = C::KEYS;
    const int lane = threadIdx.x % 32;
    const int warp_row = threadIdx.x % WARPGROUP / 32 * 16;
    const bool elected = lane == 0;
    const int tiles = count_tiles<C::QUERIES>(shape);
    const unsigned long long q = operand(shared.q(consumer), 0);

    float s[KEYS / 2];
    float o[D / 2];
    unsigned p[KEYS / 4];
    unsigned held_q[C::HELD_QUERIES ? D / 4 : 1];
    float shift[2], row_sum[2], correction[2];

    const auto my_turn = [&] {
        if constexpr (C::TURNS) named_sync(TURN_BARRIER + consumer, 2 * WARPGROUP);
    };
    const auto next_turn = [&] {
        const int next = consumer + 1 == C::CONSUMERS ? 0 : consumer + 1;
        if constexpr (C::TURNS) named_arrive(TURN_BARRIER + next, 2 * WARPGROUP);
    };
    const auto issue_scores = [&](int stage) {
        const unsigned long long k = operand(shared.k(stage), 0);
        hold(s);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < D / 16; ++step) {
            const int block = step / 4, within = step % 4 * 32;
            const unsigned long long keys = advance(k, block * KEYS * 128 + within);
            if constexpr (C::HELD_QUERIES)
                wgmma_rs<T, KEYS>(s, held_q + 4 * step, keys, step != 0);
            else
                wgmma_ss<T, KEYS>(s, advance(q, block * WARPGROUP_ROWS * 128 + within), keys,
                                  step != 0);
        }
        wgmma_commit();
    };
    const auto issue_output = [&](int stage) {
        const unsigned long long v = operand(shared.v(stage), KEYS * 128);
        hold(o);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step)
            wgmma_rs_transposed<T, D>(o, p + 4 * step, advance(v, step * 2048));
        wgmma_commit();
    };
    const auto round_probabilities = [&] {
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
    };

    Ring<C::STAGES> keys, values;
    unsigned q_parity = 0;
    if (consumer == C::CONSUMERS - 1) next_turn();
    for (int round = 0, index; (index = tile_of_round(round)) < tiles; ++round) {
        const Tile tile = tile_at<C::QUERIES, KEYS>(index, shape);
        const int first_row = tile.first_query + consumer * WARPGROUP_ROWS;
        const int row = first_row + warp_row + lane / 4;
        const auto mask_if_needed = [&](int n) {
            const int first_key = n * KEYS, last_key = first_key + KEYS - 1;
            if (last_key >= shape.seq_k || last_key > first_row + shape.band_high ||
                first_key < first_row + WARPGROUP_ROWS - 1 + shape.band_low)
                mask_scores<KEYS>(s, first_key, row, shape);
        };
#pragma unroll
        for (int i = 0; i < D / 2; ++i) o[i] = 0.f;
        shift[0] = shift[1] = negative_infinity();
        row_sum[0] = row_sum[1] = 0.f;

        barrier_wait(shared.q_full(consumer), q_parity);
        q_parity ^= 1;
        if constexpr (C::HELD_QUERIES) {
#pragma unroll
            for (int step = 0; step < D / 16; ++step)
                load_matrices(held_q + 4 * step,
                              query_chunk(shared, consumer, 2 * step + lane / 16));
        }
        if (tile.begin < tile.end) {
            barrier_wait(shared.k_full(keys.stage), keys.parity);
            issue_scores(keys.stage);
            wgmma_wait<0>();
            hold(s);
            if (elected) barrier_arrive(shared.k_empty(keys.stage));
            keys.next();
            mask_if_needed(tile.end - 1);
            softmax_step<KEYS, C::LAZY>(s, shift, row_sum, correction, scale_log2);
            round_probabilities();

            if (tile.end - 2 >= tile.begin) barrier_wait(shared.k_full(keys.stage), keys.parity);
            for (int n = tile.end - 2; n >= tile.begin; --n) {
                my_turn();
                issue_scores(keys.stage);
                barrier_wait(shared.v_full(values.stage), values.parity);
                issue_output(values.stage);
                next_turn();
                wgmma_wait<1>();
                hold(s);
                if (elected) barrier_arrive(shared.k_empty(keys.stage));
                keys.next();
                mask_if_needed(n);
                softmax_step<KEYS, C::LAZY>(s, shift, row_sum, correction, scale_log2);
                const bool rescale = !C::LAZY || __any_sync(0xffffffffu, correction[0] != 1.f ||
                                                                             correction[1] != 1.f);
                // The assembler would rather move the softmax behind the wait for the output,
                // where nothing hides it. A branch that depends on the sums (which are never
                // negative) holds it back. Its other use: to wait for the next keys, here
                // where they are not yet needed.
                hold(s);
                if (n > tile.begin && !(row_sum[0] + row_sum[1] < 0.f))
                    barrier_wait(shared.k_full(keys.stage), keys.parity);
                wgmma_wait<0>();
                hold(o);
                hold(p);
                if (elected) barrier_arrive(shared.v_empty(values.stage));
                values.next();
                round_probabilities();
                if (rescale) {
#pragma unroll
                    for (int i = 0; i < D / 2; ++i) o[i] *= correction[i / 2 % 2];
                }
            }

            barrier_wait(shared.v_full(values.stage), values.parity);
            issue_output(values.stage);
            wgmma_wait<0>();
            hold(o);
            hold(p);
            if (elected) barrier_arrive(shared.v_empty(values.stage));
            values.next();
        }

        store_tile(shared, shape, consumer, tile, shift, row_sum, o, map_out, lse);
    }
    // The last turn was passed to the first warpgroup: taken, so that no barrier is left
    // half full.
    if (consumer == 0) my_turn();
}

template <typename C>
__device__ __forceinline__ void flash(const TensorMap* map_q, const TensorMap* map_k,
                                      const TensorMap* map_v, const TensorMap* map_out, float* lse,
                                      const Shape& shape, float scale_log2) {
    extern __shared__ unsigned char dynamic_shared[];
    // The swizzle is a function of the address: blocks start at multiples of 1024 bytes.
    const Shared<C> shared{(shared_address(dynamic_shared) + 1023u) & ~1023u};
    if (threadIdx.x == 0) {
        for (int consumer = 0; consumer < C::CONSUMERS; ++consumer) {
            barrier_init(shared.q_full(consumer), 1);
            barrier_init(shared.q_empty(consumer), 1);
        }
        for (int stage = 0; stage < C::STAGES; ++stage) {
            barrier_init(shared.k_full(stage), 1);
            barrier_init(shared.v_full(stage), 1);
            // One arrival a warp: a warp's wait says nothing about the other three.
            barrier_init(shared.k_empty(stage), C::CONSUMERS * WARPGROUP / 32);
            barrier_init(shared.v_empty(stage), C::CONSUMERS * WARPGROUP / 32);
        }
        barrier_init_fence();
        tensor_prefetch(map_q);
        tensor_prefetch(map_k);
        tensor_prefetch(map_v);
        tensor_prefetch(map_out);
    }
    __syncthreads();

    const int warpgroup = uniform(threadIdx.x / WARPGROUP);
    if (warpgroup == 0) {
        give_registers<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) produce(shared, shape, map_q, map_k, map_v);
    } else {
        take_registers<C::CONSUMER_REGISTERS>();
        consume(shared, shape, warpgroup - 1, scale_log2, map_out, lse);
    }
}

}  // namespace

#define FLASH_WGMMA(NAME, TILE_QUERIES, TILE_KEYS, BLOCK, SHARED_BYTES, ...)                     \
    static_assert(Config<__VA_ARGS__>::QUERIES == TILE_QUERIES, "queries");                      \
    static_assert(Config<__VA_ARGS__>::KEYS == TILE_KEYS, "keys");                               \
    static_assert(Config<__VA_ARGS__>::THREADS == BLOCK, "threads");                             \
    static_assert(Shared<Config<__VA_ARGS__>>::BYTES == SHARED_BYTES, "shared_bytes");           \
    extern "C" __global__ void __launch_bounds__(Config<__VA_ARGS__>::THREADS, 1)                \
        NAME(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,           \
             const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap out,         \
             float* lse, int batch, int heads, int kv_heads, int seq_q, int seq_k, int band_low, \
             int band_high, int heads_per_section, float scale_log2) {                           \
        const Shape shape{batch, heads,    kv_heads,  seq_q,                                     \
                          seq_k, band_low, band_high, heads_per_section};                        \
        flash<Config<__VA_ARGS__>>(&q, &k, &v, &out, lse, shape, scale_log2);                    \
    }

#define FLASH_WGMMA_OF(DTYPE, T)                                                                   \
    FLASH_WGMMA(flash_wgmma_##DTYPE##_d128_m128_n128, 128, 128, 384, 165120, T, 128, 2, 128, true) \
    FLASH_WGMMA(flash_wgmma_##DTYPE##_d128_m128_n176, 128, 176, 384, 214272, T, 128, 2, 176,       \
                false)                                                                             \
    FLASH_WGMMA(flash_wgmma_##DTYPE##_d64_m192_n128, 192, 128, 512, 91392, T, 64, 3, 128, false)

FLASH_WGMMA_OF(bf16, __nv_bfloat16)
FLASH_WGMMA_OF(f16, __half)

#ifdef FLASH_WGMMA_STUDY  // each without one of the choices above, to see what it is worth
#define STUDY(WHAT, ...)                                                                           \
    FLASH_WGMMA(flash_wgmma_bf16_d128_m128_n128_##WHAT, 128, 128, 384, 165120, __nv_bfloat16, 128, \
                2, 128, __VA_ARGS__)
STUDY(unheld, false)
STUDY(unturned, true, false)
STUDY(eager, true, true, false)
FLASH_WGMMA(flash_wgmma_bf16_d64_m128_n128, 128, 128, 384, 83200, __nv_bfloat16, 64, 2, 128, true)
#endif
