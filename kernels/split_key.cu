// Backward of float32 attention with the key axis split over gridDim.x: the image of
// the CUTLASS kernel behind xFormers' and PyTorch's memory-efficient attention, whose
// num_splits_key once became 1 by accident (xFormers issue 1176: 157 blocks became
// 1 and training took 35 times as long). Batch and heads alone rarely fill a GPU,
// so the split is what gives it work. See simt_backward.cuh for the algorithm.
//
// Launch contract, D one of 32, 64, 128 (the smallest that is >= head_dim and head_dim_v):
//
//     split_key_prepare         grid (ceil(seq_q/8), heads, batch)   block 256
//     split_key_f32_dD          grid (num_splits, kv_heads, batch)   block 128, 256, 256
//
// num_splits from 1 to ceil(seq_k/64), decided by the host. Dynamic shared memory of the
// second: 4·(256·(D + 4) + 2·64·72 + 128) bytes = 74240, 107008, 172544.
// float32 only; needs out, lse, delta; no workspace. head_dim and head_dim_v multiples
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

extern "C" __global__ void split_key_prepare(const Problem p) { simt::prepare_gradients(p); }

#define SPLIT_KEY(D)                                                         \
    extern "C" __global__ void __launch_bounds__(simt::Backward<D>::THREADS, \
                                                 simt::Backward<D>::BLOCKS)  \
        split_key_f32_d##D(const Problem p) {                                \
        split_key<D>(p);                                                     \
    }

SPLIT_KEY(32)
SPLIT_KEY(64)
SPLIT_KEY(128)
