// What flash_wgmma_backward.cu works on: the tiles of a block in shared memory, the workspace,
// and which tiles a block walks over.
#pragma once

#include "hopper.cuh"
#include "problem.cuh"

// Inside hopper, so that the names it shares with problem.cuh are hopper's.
namespace hopper {

constexpr int kConsumers = 2;
constexpr int kKeys = 64 * kConsumers;  // of a block
constexpr int kStages = 2;
constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
constexpr int kGradientBarrier = 1;

template <Dtype kDtype>
struct Element;
template <>
struct Element<Dtype::f16> {
    using Type = __half;
};
template <>
struct Element<Dtype::bf16> {
    using Type = __nv_bfloat16;
};

template <Dtype kDtype_, int kHeadDim_>
struct Config {
    static constexpr Dtype kDtype = kDtype_;
    using T = typename Element<kDtype>::Type;
    static constexpr int kHeadDim = kHeadDim_;
    static constexpr int kQueries = 8192 / kHeadDim;  // of a tile: what registers hold
    static constexpr int kKeyBytes = kKeys * kHeadDim * 2;
    static constexpr int kQueryBytes = kQueries * kHeadDim * 2;
    static constexpr int kGradientBytes = kKeys * kQueries * 2;
    static constexpr int kRowBytes = 2 * kQueries * 4;
    // dQ of a tile is two squares of 64 x 64: side by side, or one above the other.
    static constexpr bool kBeside = kHeadDim == 128;
};

// Shared memory, as byte addresses. Tiles of 16-bit elements lie in blocks of [rows][64] with
// the 128-byte swizzle.
template <typename C>
struct Shared {
    static constexpr int kQ = 2 * C::kKeyBytes;
    static constexpr int kDout = kQ + kStages * C::kQueryBytes;
    static constexpr int kGradients = kDout + kStages * C::kQueryBytes;
    static constexpr int kRows = kGradients + 2 * C::kGradientBytes;
    static constexpr int kBarriers = kRows + kStages * C::kRowBytes;
    static constexpr int kBytes = 1024 + kBarriers + 64;
    static_assert(kBytes == 66624 + 512 * C::kHeadDim + 528 * C::kQueries, "as the contract says");

    u32 base;

    __device__ __forceinline__ u32 k() const { return base; }
    __device__ __forceinline__ u32 v() const { return base + C::kKeyBytes; }
    __device__ __forceinline__ u32 q(int stage) const { return base + kQ + stage * C::kQueryBytes; }
    __device__ __forceinline__ u32 dout(int stage) const {
        return base + kDout + stage * C::kQueryBytes;
    }
    // dS as [keys][64 queries] blocks, two of the whole: a step writes one while the other
    // warpgroup may still read that of the step before.
    __device__ __forceinline__ u32 gradients(int stage) const {
        return base + kGradients + stage * C::kGradientBytes;
    }
    __device__ __forceinline__ u32 rows(int stage) const {
        return base + kRows + stage * C::kRowBytes;
    }
    __device__ __forceinline__ u32 keys_full() const { return base + kBarriers; }
    __device__ __forceinline__ u32 full(int stage) const {
        return base + kBarriers + 8 + stage * 8;
    }
    __device__ __forceinline__ u32 empty(int stage) const { return full(kStages + stage); }
};

// The workspace: tile `tile` of queries of one head.
template <typename C>
struct Workspace {
    float4* dq;   // [2 squares][8][128 threads]
    float* rows;  // [2][kQueries]

    __device__ __forceinline__ Workspace(const Problem& p, int batch, int head, int tile) {
        const long long tiles = ceil_div(p.seq_q, C::kQueries);
        const long long planes = static_cast<long long>(p.batch) * p.heads;
        const long long index = (static_cast<long long>(batch) * p.heads + head) * tiles + tile;
        dq = reinterpret_cast<float4*>(p.workspace + index * C::kQueries * C::kHeadDim);
        rows = p.workspace + planes * tiles * C::kQueries * C::kHeadDim + index * 2 * C::kQueries;
    }
};

// The steps of a block: the tiles of queries that see its keys, of each head of the group.
//
// Under a mask that opens to the right the first keys are seen by the most queries, and a
// long block that starts last is waited for. So blocks are dealt section by section, the
// first keys of all heads of a section before the next keys; a section is as many heads as
// have 64 MiB of Q, dO and dQ, about what L2 holds. A full mask goes head by head.
template <typename C>
struct Walk {
    int kv, batch, first_key, first_tile, tiles, steps;
    int head, tile;  // of the step at hand

    static __device__ __forceinline__ int section_of(const Problem& p, int planes, int group) {
        const long long bytes = static_cast<long long>(p.seq_q) * group * C::kHeadDim * 8;
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
        first_key = within / count * kKeys;
        int first, end;
        band.queries(first_key, min(first_key + kKeys, p.seq_k), p.seq_q, first, end);
        first_tile = first / C::kQueries;
        tiles = end > first ? ceil_div(end, C::kQueries) - first_tile : 0;
        steps = tiles * group;
        head = kv * group;
        tile = first_tile;
    }
    __device__ __forceinline__ void next() {
        if (++tile == first_tile + tiles) tile = first_tile, ++head;
    }
};

}  // namespace hopper
