// Backward of float32 attention with the key axis split over gridDim.x: the image of
// the CUTLASS kernel behind xFormers' and PyTorch's memory-efficient attention, whose
// num_splits_key once became 1 by accident (xFormers issue 1176: 157 blocks became
// 1 and training took 35 times as long). Batch and heads alone rarely fill a GPU,
// so the split is what gives it work. See simt_backward.cuh for the algorithm.
//
// Launch contract, with contracts.toml; the smallest head_dim that holds the problem's, in
// this order:
//
//     prepare    grid (ceil(seq_q / queries), heads, batch)
//     backward   grid (num_splits, kv_heads, batch)
//
// num_splits from 1 to ceil(seq_k / keys), decided by the host. float32 only; needs out, lse, delta; no workspace. head_dim and head_dim_v multiples
// of 4; every stride of q, k, v, dout, dq, dk, dv a multiple of 4 elements, and their
// data 16-byte aligned. dq is summed in no fixed order: not deterministic. D = 128 needs
// more shared memory than sm_80 lends a block.

#include "simt_backward.cuh"

namespace {

template <int D>
__device__ __forceinline__ void split_key(const Problem& p) {
    extern __shared__ __align__(16) float shared[];
    simt::Backward<D> backward(shared);
    for (int tile = blockIdx.x; tile * simt::TILE < p.seq_k; tile += gridDim.x)
        backward.key_tile(p, blockIdx.z, blockIdx.y, tile);
}

}  // namespace

SIMT_PREPARE(split_key_prepare)

#define SPLIT_KEY(D, BLOCK, BYTES) SIMT_BACKWARD(split_key_f32_d##D, split_key, D, BLOCK, BYTES)

SPLIT_KEY(32, 128, 74240)
SPLIT_KEY(64, 256, 107008)
SPLIT_KEY(128, 256, 172544)
