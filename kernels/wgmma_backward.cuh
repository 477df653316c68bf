// The data of flash_wgmma_backward.cu: the tiles of a block in shared memory, the workspace,
// and which tiles a block walks over.
#pragma once

#include "hopper.cuh"
#include "problem.cuh"

namespace hopper {

constexpr int CONSUMERS = 2;
constexpr int KEYS = 64 * CONSUMERS;  // of a block
constexpr int STAGES = 2;
constexpr int THREADS = (1 + CONSUMERS) * WARPGROUP;
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
constexpr int GRADIENT_BARRIER = 1;

template <typename T_, int D_>
struct Config {
    using T = T_;
    static constexpr int D = D_;
    static constexpr int QUERIES = 8192 / D;  // of a tile: what registers hold
    static constexpr int KEY_BYTES = KEYS * D * 2;
    static constexpr int QUERY_BYTES = QUERIES * D * 2;
    static constexpr int GRADIENT_BYTES = KEYS * QUERIES * 2;
    static constexpr int ROW_BYTES = 2 * QUERIES * 4;
    /// dQ of a tile is two squares of 64 x 64: side by side, or one above the other.
    static constexpr bool BESIDE = D == 128;
};

/// Shared memory, as byte addresses. Tiles of 16-bit elements lie in blocks of [rows][64] with
/// the 128-byte swizzle.
template <typename C>
struct Shared {
    static constexpr int Q = 2 * C::KEY_BYTES;
    static constexpr int DOUT = Q + STAGES * C::QUERY_BYTES;
    static constexpr int GRADIENTS = DOUT + STAGES * C::QUERY_BYTES;
    static constexpr int ROWS = GRADIENTS + 2 * C::GRADIENT_BYTES;
    static constexpr int BARRIERS = ROWS + STAGES * C::ROW_BYTES;
    static constexpr int BYTES = 1024 + BARRIERS + 64;

    unsigned base;

    __device__ __forceinline__ unsigned k() const { return base; }
    __device__ __forceinline__ unsigned v() const { return base + C::KEY_BYTES; }
    __device__ __forceinline__ unsigned q(int stage) const {
        return base + Q + stage * C::QUERY_BYTES;
    }
    __device__ __forceinline__ unsigned dout(int stage) const {
        return base + DOUT + stage * C::QUERY_BYTES;
    }
    /// dS as [keys][64 queries] blocks, two of the whole: a step writes one while the other
    /// warpgroup may still read that of the step before.
    __device__ __forceinline__ unsigned gradients(int stage) const {
        return base + GRADIENTS + stage * C::GRADIENT_BYTES;
    }
    __device__ __forceinline__ unsigned rows(int stage) const {
        return base + ROWS + stage * C::ROW_BYTES;
    }
    __device__ __forceinline__ unsigned keys_full() const { return base + BARRIERS; }
    __device__ __forceinline__ unsigned full(int stage) const {
        return base + BARRIERS + 8 + stage * 8;
    }
    __device__ __forceinline__ unsigned empty(int stage) const { return full(STAGES + stage); }
};

/// The workspace: tile `tile` of queries of one head.
template <typename C>
struct Workspace {
    float4* dq;   // [2 squares][8][128 threads]
    float* rows;  // [2][QUERIES]

    __device__ __forceinline__ Workspace(const Problem& p, int batch, int head, int tile) {
        const long long tiles = ceil_div(p.seq_q, C::QUERIES);
        const long long planes = static_cast<long long>(p.batch) * p.heads;
        const long long index = (static_cast<long long>(batch) * p.heads + head) * tiles + tile;
        dq = reinterpret_cast<float4*>(p.workspace + index * C::QUERIES * C::D);
        rows = p.workspace + planes * tiles * C::QUERIES * C::D + index * 2 * C::QUERIES;
    }
};

/// The steps of a block: the tiles of queries that see its keys, of each head of the group.
///
/// Under a mask that opens to the right the first keys are seen by the most queries, and a
/// long block that starts last is waited for. So blocks are dealt section by section, the
/// first keys of all heads of a section before the next keys; a section is as many heads as
/// have 64 MiB of Q, dO and dQ, about what L2 holds. A full mask goes head by head.
template <typename C>
struct Walk {
    int kv, batch, first_key, first_tile, tiles, steps;
    int head, tile;  // of the current step

    static __device__ __forceinline__ int section_of(const Problem& p, int planes, int group) {
        const long long bytes = static_cast<long long>(p.seq_q) * group * C::D * 8;
        return static_cast<int>(
            max(min((64ll << 20) / bytes, static_cast<long long>(planes)), 1ll));
    }

    __device__ __forceinline__ Walk(const Problem& p, const Band& band) {
        const int group = p.heads / p.kv_heads;
        const int planes = p.batch * p.kv_heads;
        const int section = p.mask_right < 0 ? 1 : section_of(p, planes, group);
        const int index = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        const int first_plane = index / (static_cast<int>(gridDim.x) * section) * section;
        const int count = min(section, planes - first_plane);
        const int within = index - first_plane * static_cast<int>(gridDim.x);
        const int plane_index = first_plane + within % count;
        kv = plane_index % p.kv_heads;
        batch = plane_index / p.kv_heads;
        first_key = within / count * KEYS;
        int first, end;
        band.queries(first_key, min(first_key + KEYS, p.seq_k), p.seq_q, first, end);
        first_tile = first / C::QUERIES;
        tiles = end > first ? ceil_div(end, C::QUERIES) - first_tile : 0;
        steps = tiles * group;
        head = kv * group;
        tile = first_tile;
    }
    __device__ __forceinline__ void next() {
        if (++tile == first_tile + tiles) tile = first_tile, ++head;
    }
};

}  // namespace hopper
