// The common parts of all kernels: constants, conversions, sums over a warp, and
// thin functions for the instructions that more than one file uses.
//
// Compiles under nvcc and NVRTC (which has no libc headers) alike.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;

/// A function, since neither compiler's built-in constant is the other's.
__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}

template <typename T>
constexpr bool IS_BF16 = false;
template <>
constexpr bool IS_BF16<__nv_bfloat16> = true;

/// Two values rounded to a 16-bit type, side by side.
template <typename T>
__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned pair;
    if constexpr (IS_BF16<T>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    }
    return pair;
}

__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/// Copies 16 bytes from global to shared memory in the background; writes zeros,
/// and reads nothing, when `inside` is false.
__device__ __forceinline__ void copy_async_16(unsigned shared, const void* global, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(inside ? 16 : 0));
}
__device__ __forceinline__ void copy_async_4(unsigned shared, const void* global, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
                 "r"(inside ? 4 : 0));
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::); }
/// Waits until at most `PENDING` of this thread's committed groups are still under way.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Four 8×8 matrices of 16-bit elements from shared memory, one row address a lane.
__device__ __forceinline__ void load_matrices(unsigned* m, unsigned shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared)
                 : "memory");
}

/// Adds 4 floats to global memory, 16-byte aligned, in one atomic where the device has such
/// (sm_90 on), each for itself anyway: the four are never read as one.
__device__ __forceinline__ void add_float4(float* to, float4 x) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(to), x);
#else
    atomicAdd(to, x.x);
    atomicAdd(to + 1, x.y);
    atomicAdd(to + 2, x.z);
    atomicAdd(to + 3, x.w);
#endif
}
