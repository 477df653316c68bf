// Random inputs made on the device: what attention/inputs.rs of crates/worker makes on a
// processor, bit for bit, so that no input travels and any element can be recomputed anywhere.
//
// Element `index` of a tensor is a pure function of (seed, tensor, index), with `index`
// counting [batch, seq, heads, dim] in that order whatever the strides are (SplitMix64:
// Steele, Lea & Flood, OOPSLA 2014). It is uniform in [-√3, √3), computed in double, rounded
// to float and from there to the storage type, to nearest even each time.
//
// Launch contract, with contracts.toml
//
//     inputs    grid (any number of blocks >= 1, 1, 1)
//
// One argument, `Fill` by value (64 bytes). Blocks share the elements whatever the grid is; 8 blocks a multiprocessor are enough. Any strides and
// alignment; fewer than 2^40 elements, where the next tensor's would begin.

#include "problem.cuh"

struct Fill {
    Tensor to;                   //  0  data, then element strides of batch, seq and head
    unsigned long long seed;     // 32
    unsigned long long tensor;   // 40  0: q, 1: k, 2: v, 3: dout
    int batch, seq, heads, dim;  // 48, 52, 56, 60
};
static_assert(sizeof(Fill) == 64, "hosts fill this field by field");

namespace {

constexpr int THREADS = 256;

/// Steps of one operation each, so that no multiply-add is contracted into another rounding.
__device__ __forceinline__ double element(const Fill& fill, unsigned long long index) {
    const unsigned long long counter = (fill.tensor << 40) + index + 1;
    unsigned long long z = fill.seed + counter * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    const double unit = __dmul_rn(static_cast<double>(z >> 11), 0x1p-53);
    return __dmul_rn(__dadd_rn(__dmul_rn(2.0, unit), -1.0), 1.7320508075688772);
}

template <typename T>
__device__ __forceinline__ void fill(const Fill& fill) {
    const long long row_elements = static_cast<long long>(fill.heads) * fill.dim;
    const long long elements = static_cast<long long>(fill.batch) * fill.seq * row_elements;
    const long long step = static_cast<long long>(gridDim.x) * THREADS;
    for (long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x; i < elements;
         i += step) {
        const long long row = i / row_elements, within = i % row_elements;
        const int batch = static_cast<int>(row / fill.seq);
        const int head = static_cast<int>(within / fill.dim);
        plane<T>(fill.to, batch, head)[row % fill.seq * fill.to.seq + within % fill.dim] =
            from_float<T>(__double2float_rn(element(fill, i)));
    }
}

}  // namespace

#define INPUTS(DTYPE, T)                                                                 \
    static_assert(THREADS == 256, "threads");                                            \
    extern "C" __global__ void __launch_bounds__(THREADS) inputs_##DTYPE(const Fill f) { \
        fill<T>(f);                                                                      \
    }

INPUTS(f32, float)
INPUTS(f16, __half)
INPUTS(bf16, __nv_bfloat16)
