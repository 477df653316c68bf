// The data of flash_wgmma.cu: its tile variants, the tiles of queries and their order, a
// block's shared memory, and the scores that a mask hides.
#pragma once

#include "hopper.cuh"

namespace hopper {

constexpr int WARPGROUP_ROWS = 64;   // queries of a warpgroup: the M of wgmma
constexpr int TURN_BARRIER = 1;      // named barriers 1 to 3, one a consumer
constexpr int EPILOGUE_BARRIER = 4;  // named barriers 4 to 6

/// The parameters in which the kernels of this file differ.
template <typename T_, int D_, int CONSUMERS_, int KEYS_, bool HELD_QUERIES_, bool TURNS_ = true,
          bool LAZY_ = true>
struct Config {
    using T = T_;
    static constexpr int D = D_;
    static constexpr int CONSUMERS = CONSUMERS_;  // warpgroups that compute
    static constexpr int KEYS = KEYS_;            // keys of a tile
    static constexpr int STAGES = 2;              // key tiles, and value tiles, in the ring
    /// Queries stay in registers instead of being read from shared memory for every tile:
    /// where there is room for them.
    static constexpr bool HELD_QUERIES = HELD_QUERIES_;
    static constexpr bool TURNS = TURNS_;  // consumers issue their products in turn
    static constexpr bool LAZY = LAZY_;    // see softmax_step
    static constexpr int QUERIES = CONSUMERS * WARPGROUP_ROWS;
    static constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
    /// Together what the block starts with: 384 * 168 or 512 * 128.
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : 160;
};

struct Shape {
    int batch, heads, kv_heads, seq_q, seq_k, band_low, band_high, heads_per_section;
};

/// The place of one tile of queries, and the tiles of keys it needs.
struct Tile {
    int batch, head, kv_head, first_query, begin, end;
};

template <int QUERIES>
__device__ __forceinline__ int count_tiles(const Shape& shape) {
    return ceil_div(shape.seq_q, QUERIES) * shape.batch * shape.heads;
}

/// The tile that this block takes in a round. Every second round goes backwards: tiles get
/// shorter under a causal mask, and so no block gets the longest of every round.
__device__ __forceinline__ int tile_of_round(int round) {
    const int place = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return round * gridDim.x + place;
}

template <int QUERIES, int KEYS>
__device__ __forceinline__ Tile tile_at(int index, const Shape& shape) {
    const int rows = ceil_div(shape.seq_q, QUERIES);
    const int all_heads = shape.batch * shape.heads;
    const int section = index / (shape.heads_per_section * rows);
    const int first_head = section * shape.heads_per_section;
    const int heads = min(shape.heads_per_section, all_heads - first_head);
    const int within = index - first_head * rows;
    // The last queries see the most keys of a causal mask.
    const int row = rows - 1 - within / heads;
    const int plane = first_head + within % heads;

    Tile tile;
    tile.batch = plane / shape.heads;
    tile.head = plane % shape.heads;
    tile.kv_head = tile.head / (shape.heads / shape.kv_heads);
    tile.first_query = row * QUERIES;
    const int last_query = min(tile.first_query + QUERIES, shape.seq_q) - 1;
    const int first_key = max(0, tile.first_query + shape.band_low);
    const int end_key = min(shape.seq_k, last_query + shape.band_high + 1);
    tile.begin = first_key / KEYS;
    tile.end = end_key > first_key ? ceil_div(end_key, KEYS) : tile.begin;
    return tile;
}

/// Position in a ring of buffers, and the parity of its barriers.
template <int STAGES>
struct Ring {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/// Shared memory, as byte addresses. A queries' block doubles as the staging buffer of the
/// output: the same warpgroup owns both.
template <typename C>
struct Shared {
    static constexpr int CONSUMERS = C::CONSUMERS, STAGES = C::STAGES;
    static constexpr int QUERY_BYTES = WARPGROUP_ROWS * C::D * 2;
    static constexpr int TILE_BYTES = C::KEYS * C::D * 2;
    static constexpr int BLOCKS = CONSUMERS * QUERY_BYTES + 2 * STAGES * TILE_BYTES;
    static constexpr int BARRIERS = 2 * CONSUMERS + 4 * STAGES;
    static constexpr int BYTES = 1024 + BLOCKS + 256;
    static_assert(BARRIERS * 8 <= 256, "barriers outgrow their room");
    static_assert(BYTES <= 232448, "more than the 227 KiB a block may have");

    unsigned base;

    __device__ __forceinline__ unsigned q(int consumer) const {
        return base + consumer * QUERY_BYTES;
    }
    __device__ __forceinline__ unsigned k(int stage) const {
        return base + CONSUMERS * QUERY_BYTES + stage * TILE_BYTES;
    }
    __device__ __forceinline__ unsigned v(int stage) const { return k(STAGES + stage); }
    __device__ __forceinline__ unsigned barrier(int index) const {
        return base + BLOCKS + index * 8;
    }
    __device__ __forceinline__ unsigned q_full(int consumer) const { return barrier(consumer); }
    __device__ __forceinline__ unsigned q_empty(int consumer) const {
        return barrier(CONSUMERS + consumer);
    }
    __device__ __forceinline__ unsigned k_full(int stage) const {
        return barrier(2 * CONSUMERS + stage);
    }
    __device__ __forceinline__ unsigned k_empty(int stage) const { return k_full(STAGES + stage); }
    __device__ __forceinline__ unsigned v_full(int stage) const {
        return k_full(2 * STAGES + stage);
    }
    __device__ __forceinline__ unsigned v_empty(int stage) const {
        return k_full(3 * STAGES + stage);
    }
};

/// Address, in this lane's row of its warp's 16, of 8 elements of the queries' block: for
/// ldmatrix and stmatrix alike.
template <typename C>
__device__ __forceinline__ unsigned query_chunk(const Shared<C>& shared, int consumer, int chunk) {
    const int row = threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 16;
    return shared.q(consumer) + chunk / 8 * WARPGROUP_ROWS * 128 + row * 128 +
           (chunk % 8 ^ row % 8) * 16;
}

/// Scores of the accumulator layout: thread (warp, lane) holds, of the 8-key column block j,
/// s[4j..4j+1] of row lane / 4 and s[4j+2..4j+3] of the row 8 below, keys 2 * (lane % 4) on.
template <int KEYS>
__device__ __forceinline__ void mask_scores(float (&s)[KEYS / 2], int first_key, int row,
                                            const Shape& shape) {
    const int column = first_key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int query = row + 8 * half;
        const int low = query + shape.band_low - column;
        const int high = min(query + shape.band_high, shape.seq_k - 1) - column;
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) {
            const int key = i / 2 * 8 + i % 2;
            float& score = s[i / 2 * 4 + half * 2 + i % 2];
            if (key < low || key > high) score = negative_infinity();
        }
    }
}

}  // namespace hopper
