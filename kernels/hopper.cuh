// Hopper's asynchronous machinery, one thin function an instruction.
//
// The instructions of sm_90a that attention needs: tensor copies between global and shared memory
// that a single thread starts (TMA), barriers in shared memory that count arriving bytes
// (mbarrier), matrix products of a whole warpgroup that read shared memory themselves and
// run while its threads do something else (wgmma), and registers that move between
// warpgroups (setmaxnreg). The names follow the PTX ISA 9.0 manual, which is also the
// source of each operand order and of the two shared-memory layouts below.
//
// Compiles under nvcc and NVRTC alike.
#pragma once

#include "device.cuh"

namespace hopper {

/// The structure that cuTensorMapEncodeTiled fills in. NVRTC has no cuda.h to name it.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

constexpr int WARPGROUP = 128;  // threads of a warpgroup

// ---------------------------------------------------------------- threads and registers

/// The same value in every lane, so that the compiler may keep it in a uniform register.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/// Named barriers: `threads` counts those that wait and those that only arrive.
__device__ __forceinline__ void named_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---------------------------------------------------------------- mbarrier

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/// Waits until the phase of this parity is over. A fresh barrier is in phase 0, so waiting
/// for parity 1 returns at once: that is how a ring starts out empty.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;"
        "@done bra over;"
        "bra again;"
        "over:\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// ---------------------------------------------------------------- TMA
//
// Tensors are seen in five axes, (64 elements of a row, sequence, 64-element part of a
// row, head, batch): one copy then brings a tile of whole rows as one or two blocks of
// [sequence][64], each with the 128-byte swizzle, whatever the layout in global memory.

__device__ __forceinline__ void tensor_prefetch(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tensor_load(unsigned shared, const TensorMap* map, unsigned barrier,
                                            int row, int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(shared),
        "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

/// Contiguous bytes: addresses and count are multiples of 16.
__device__ __forceinline__ void bulk_load(unsigned shared, const void* global, unsigned bytes,
                                          unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

/// Rows beyond the end of the tensor are not written.
__device__ __forceinline__ void tensor_store(const TensorMap* map, unsigned shared, int row,
                                             int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
        "[%0, {%2, %3, %2, %4, %5}], [%1];" ::"l"(map),
        "r"(shared), "r"(0), "r"(row), "r"(head), "r"(batch)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Until the stores of this thread have read their shared memory.
__device__ __forceinline__ void tensor_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// Orders ordinary shared-memory accesses before those of TMA and wgmma.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// The way back of load_matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(unsigned address, unsigned a, unsigned b, unsigned c,
                                               unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// ---------------------------------------------------------------- wgmma

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/// A wgmma writes (and reads) its registers long after the instruction was issued, which
/// the compiler cannot see. These tie a register to a place in the program: nothing that
/// uses it moves across.
template <int COUNT>
__device__ __forceinline__ void hold(float (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

template <int COUNT>
__device__ __forceinline__ void hold(unsigned (&registers)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

/// Descriptor of an operand that lies in blocks of [rows][64] with the 128-byte swizzle,
/// each block 1024-byte aligned.
///
/// Contraction along the 64 elements (K-major: Q and K in QK^T): eight rows are 1024 bytes,
/// the stride; the leading offset is not used. The next 16 elements are 32 bytes on.
/// Contraction along the rows (MN-major: V in PV): the leading offset leads from one
/// 64-wide block to the next. The next 16 rows are 2048 bytes on.
__device__ __forceinline__ unsigned long long operand(unsigned shared, unsigned block_bytes) {
    return static_cast<unsigned long long>((shared & 0x3ffff) >> 4) |
           static_cast<unsigned long long>(block_bytes >> 4) << 16 |
           static_cast<unsigned long long>(1024 >> 4) << 32 |
           static_cast<unsigned long long>(1) << 62;
}

/// Moves an operand by a number of bytes; the address field counts 16 bytes.
__device__ __forceinline__ unsigned long long advance(unsigned long long operand, unsigned bytes) {
    return operand + (bytes >> 4);
}

#define HOPPER_R32_0                                                                             \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
    "%25,%26,%27,%28,%29,%30,%31"
#define HOPPER_R32_1                                                                           \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53," \
    "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HOPPER_R24_64                                                                          \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85," \
    "%86,%87"

#define HOPPER_F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HOPPER_F8(d, i) HOPPER_F4(d, i), HOPPER_F4(d, i + 4)
#define HOPPER_F16(d, i) HOPPER_F8(d, i), HOPPER_F8(d, i + 8)
#define HOPPER_F32(d, i) HOPPER_F16(d, i), HOPPER_F16(d, i + 16)
#define HOPPER_F64(d, i) HOPPER_F32(d, i), HOPPER_F32(d, i + 32)

// D[64, N] (+)= A[64, 16] B[N, 16]^T, both operands in shared memory: K-major for TRANSPOSED
// "0, 0", MN-major for "1, 1".
#define HOPPER_SS(TYPE, N, REGISTERS, A, B, P, TRANSPOSED, ...)                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                        \
                 ", 0;"                                                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGISTERS \
                 "}, %" #A ", %" #B ", p, 1, 1, " TRANSPOSED ";\n}\n"                           \
                 : __VA_ARGS__                                                                  \
                 : "l"(a), "l"(b), "r"(accumulate))

// D[64, N] (+)= A[64, 16] B, A in registers, B in shared memory: K-major for TRANSPOSED "0",
// MN-major for "1".
#define HOPPER_RS(TYPE, N, REGISTERS, A0, A1, A2, A3, B, P, TRANSPOSED, ...)                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                        \
                 ", 0;"                                                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGISTERS \
                 "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", p, 1, 1, " TRANSPOSED      \
                 ";\n}\n"                                                                       \
                 : __VA_ARGS__                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define HOPPER_BY_DTYPE(INSTRUCTION, ...) \
    if constexpr (IS_BF16<T>)             \
        INSTRUCTION("bf16", __VA_ARGS__); \
    else                                  \
        INSTRUCTION("f16", __VA_ARGS__)

/// Scores: `COLUMNS` keys against 64 queries, 16 elements of the head dimension a call.
/// `accumulate` of 0 overwrites `d`.
template <typename T, int COLUMNS>
__device__ __forceinline__ void wgmma_ss(float (&d)[COLUMNS / 2], unsigned long long a,
                                         unsigned long long b, int accumulate) {
    static_assert(COLUMNS == 64 || COLUMNS == 128 || COLUMNS == 176,
                  "add the instruction for this tile");
    if constexpr (COLUMNS == 64) {
        HOPPER_BY_DTYPE(HOPPER_SS, 64, HOPPER_R32_0, 32, 33, 34, "0, 0", HOPPER_F32(d, 0));
    } else if constexpr (COLUMNS == 128) {
        HOPPER_BY_DTYPE(HOPPER_SS, 128, HOPPER_R32_0 "," HOPPER_R32_1, 64, 65, 66, "0, 0",
                        HOPPER_F64(d, 0));
    } else {
        HOPPER_BY_DTYPE(HOPPER_SS, 176, HOPPER_R32_0 "," HOPPER_R32_1 "," HOPPER_R24_64, 88, 89, 90,
                        "0, 0", HOPPER_F64(d, 0), HOPPER_F16(d, 64), HOPPER_F8(d, 80));
    }
}

/// Both operands MN-major: 16 rows of [16][64] times 16 rows of [16][64], contracted along
/// the rows.
template <typename T>
__device__ __forceinline__ void wgmma_ss_transposed(float (&d)[32], unsigned long long a,
                                                    unsigned long long b, int accumulate) {
    HOPPER_BY_DTYPE(HOPPER_SS, 64, HOPPER_R32_0, 32, 33, 34, "1, 1", HOPPER_F32(d, 0));
}

/// The same with the queries in registers; K-major keys.
template <typename T, int COLUMNS>
__device__ __forceinline__ void wgmma_rs(float (&d)[COLUMNS / 2], const unsigned* a,
                                         unsigned long long b, int accumulate) {
    static_assert(COLUMNS == 128, "add the instruction for this tile");
    HOPPER_BY_DTYPE(HOPPER_RS, 128, HOPPER_R32_0 "," HOPPER_R32_1, 64, 65, 66, 67, 68, 69, "0",
                    HOPPER_F64(d, 0));
}

/// Output: 64 rows of probabilities times 16 rows of V, which is MN-major; always adds.
template <typename T, int COLUMNS>
__device__ __forceinline__ void wgmma_rs_transposed(float (&d)[COLUMNS / 2], const unsigned* a,
                                                    unsigned long long b) {
    static_assert(COLUMNS == 64 || COLUMNS == 128, "add the instruction for this head_dim");
    constexpr int accumulate = 1;
    if constexpr (COLUMNS == 64) {
        HOPPER_BY_DTYPE(HOPPER_RS, 64, HOPPER_R32_0, 32, 33, 34, 35, 36, 37, "1", HOPPER_F32(d, 0));
    } else {
        HOPPER_BY_DTYPE(HOPPER_RS, 128, HOPPER_R32_0 "," HOPPER_R32_1, 64, 65, 66, 67, 68, 69, "1",
                        HOPPER_F64(d, 0));
    }
}

}  // namespace hopper
