// What flash_wgmma.cu works on: its tile variants, the tiles of queries and their order, and a
// block's shared memory.
#pragma once

#include "hopper.cuh"

namespace hopper {

constexpr int kRowsOfWarpgroup = 64;  // queries of a warpgroup: the M of wgmma
constexpr int kTurnBarrier = 1;       // named barriers 1 to 3, one a consumer
constexpr int kEpilogueBarrier = 4;   // named barriers 4 to 6

// What distinguishes one kernel of this file from the next.
template <Dtype kDtype_, int kHeadDim_, int kConsumers_, int kN_, bool kHeldQueries_,
          bool kTurns_ = true, bool kLazy_ = true>
struct Config {
    static constexpr Dtype kDtype = kDtype_;
    static constexpr int kHeadDim = kHeadDim_;
    static constexpr int kConsumers = kConsumers_;  // warpgroups that compute
    static constexpr int kN = kN_;                  // keys of a tile
    static constexpr int kStages = 2;               // key tiles, and value tiles, in the ring
    // Queries stay in registers instead of being read from shared memory for every tile:
    // where there is room for them.
    static constexpr bool kHeldQueries = kHeldQueries_;
    static constexpr bool kTurns = kTurns_;  // consumers issue their products in turn
    static constexpr bool kLazy = kLazy_;    // see softmax_step
    static constexpr int kM = kConsumers * kRowsOfWarpgroup;
    static constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
    // Together what the block starts with: 384 * 168 or 512 * 128.
    static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
    static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;
};

struct Shape {
    int batch, heads, kv_heads, seq_q, seq_k, band_low, band_high, heads_per_section;
};

// Where one tile of queries is, and which tiles of keys it needs.
struct Tile {
    int batch, head, kv_head, first_query, begin, end;
};

template <int kM>
__device__ __forceinline__ int count_tiles(const Shape& shape) {
    return (shape.seq_q + kM - 1) / kM * shape.batch * shape.heads;
}

// The tile that this block takes in a round. Every second round goes backwards: tiles get
// shorter under a causal mask, and so nobody gets the longest of every round.
__device__ __forceinline__ int tile_of_round(int round) {
    const int place = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return round * gridDim.x + place;
}

template <int kM, int kN>
__device__ __forceinline__ Tile tile_at(int index, const Shape& shape) {
    const int rows = (shape.seq_q + kM - 1) / kM;
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
    tile.first_query = row * kM;
    const int last_query = min(tile.first_query + kM, shape.seq_q) - 1;
    const int first_key = max(0, tile.first_query + shape.band_low);
    const int end_key = min(shape.seq_k, last_query + shape.band_high + 1);
    tile.begin = first_key / kN;
    tile.end = end_key > first_key ? (end_key + kN - 1) / kN : tile.begin;
    return tile;
}

// Position in a ring of buffers, and the parity of its barriers.
template <int kStages>
struct Ring {
    int stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// Shared memory, as byte addresses. A queries' block doubles as the staging buffer of the
// output: the same warpgroup owns both.
template <typename C>
struct Shared {
    static constexpr int kConsumers = C::kConsumers, kStages = C::kStages;
    static constexpr int kQueryBytes = kRowsOfWarpgroup * C::kHeadDim * 2;
    static constexpr int kTileBytes = C::kN * C::kHeadDim * 2;
    static constexpr int kBlocks = kConsumers * kQueryBytes + 2 * kStages * kTileBytes;
    static constexpr int kBarriers = 2 * kConsumers + 4 * kStages;
    static constexpr int kBytes = 1024 + kBlocks + 256;
    static_assert(kBarriers * 8 <= 256, "barriers outgrow their room");
    static_assert(kBytes <= 232448, "more than the 227 KiB a block may have");

    u32 base;

    __device__ __forceinline__ u32 q(int consumer) const { return base + consumer * kQueryBytes; }
    __device__ __forceinline__ u32 k(int stage) const {
        return base + kConsumers * kQueryBytes + stage * kTileBytes;
    }
    __device__ __forceinline__ u32 v(int stage) const { return k(kStages + stage); }
    __device__ __forceinline__ u32 barrier(int index) const { return base + kBlocks + index * 8; }
    __device__ __forceinline__ u32 q_full(int consumer) const { return barrier(consumer); }
    __device__ __forceinline__ u32 q_empty(int consumer) const {
        return barrier(kConsumers + consumer);
    }
    __device__ __forceinline__ u32 k_full(int stage) const {
        return barrier(2 * kConsumers + stage);
    }
    __device__ __forceinline__ u32 k_empty(int stage) const { return k_full(kStages + stage); }
    __device__ __forceinline__ u32 v_full(int stage) const { return k_full(2 * kStages + stage); }
    __device__ __forceinline__ u32 v_empty(int stage) const { return k_full(3 * kStages + stage); }
};

}  // namespace hopper
