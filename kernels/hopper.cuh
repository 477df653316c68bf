// Hopper's asynchronous machinery, one thin function an instruction.
//
// What sm_90a adds and attention needs: tensor copies between global and shared memory
// that a single thread starts (TMA), barriers in shared memory that count arriving bytes
// (mbarrier), matrix products of a whole warpgroup that read shared memory themselves and
// run while its threads do something else (wgmma), and registers that move between
// warpgroups (setmaxnreg). The names follow the PTX ISA 9.0 manual, which is also the
// source of each operand order and of the two shared-memory layouts below.
//
// Compiles under nvcc and NVRTC alike: no header is included, not even for fp16 or bf16.
#pragma once

namespace hopper {

using u32 = unsigned int;
using u64 = unsigned long long;

// What cuTensorMapEncodeTiled fills in. NVRTC has no cuda.h to name it.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

enum class Dtype { f16, bf16 };

constexpr int kWarpgroup = 128;  // threads of a warpgroup

// ---------------------------------------------------------------- threads and registers

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// The same value in every lane, so that the compiler may keep it in a uniform register.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Named barriers: `threads` counts those that wait and those that only arrive.
__device__ __forceinline__ void named_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---------------------------------------------------------------- mbarrier

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Waits until the phase of this parity is over. A fresh barrier is in phase 0, so waiting
// for parity 1 returns at once: that is how a ring starts out empty.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
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

__device__ __forceinline__ void tensor_load(u32 shared, const TensorMap* map, u32 barrier, int row,
                                            int head, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(shared),
        "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(head), "r"(batch)
        : "memory");
}

// Contiguous bytes: addresses and count are multiples of 16.
__device__ __forceinline__ void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}

// Rows beyond the end of the tensor are not written.
__device__ __forceinline__ void tensor_store(const TensorMap* map, u32 shared, int row, int head,
                                             int batch) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
        "[%0, {%2, %3, %2, %4, %5}], [%1];" ::"l"(map),
        "r"(shared), "r"(0), "r"(row), "r"(head), "r"(batch)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the stores of this thread have read their shared memory.
__device__ __forceinline__ void tensor_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Orders ordinary shared-memory accesses before those of TMA and wgmma.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---------------------------------------------------------------- arithmetic on 16-bit pairs

template <Dtype kDtype>
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 pair;
    if constexpr (kDtype == Dtype::bf16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    }
    return pair;
}

// A function, since neither compiler's built-in constant is the other's.
__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }

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

// Four 8x8 matrices of 16-bit elements from registers to shared memory; lane l gives the
// address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// The way back.
__device__ __forceinline__ void load_matrices(u32* m, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

// ---------------------------------------------------------------- wgmma

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// A wgmma writes (and reads) its registers long after the instruction was issued, which
// the compiler cannot see. These tie a register to a place in the program: nothing that
// uses it moves across.
template <int kCount>
__device__ __forceinline__ void hold(float (&registers)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void hold(u32 (&registers)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// Descriptor of an operand that lies in blocks of [rows][64] with the 128-byte swizzle,
// each block 1024-byte aligned.
//
// Contraction along the 64 elements (K-major: Q and K in QK^T): eight rows are 1024 bytes,
// the stride; the leading offset is not used. The next 16 elements are 32 bytes on.
// Contraction along the rows (MN-major: V in PV): the leading offset leads from one
// 64-wide block to the next. The next 16 rows are 2048 bytes on.
__device__ __forceinline__ u64 operand(u32 shared, u32 block_bytes) {
    return (u64)((shared & 0x3ffff) >> 4) | (u64)(block_bytes >> 4) << 16 | (u64)(1024 >> 4) << 32 |
           (u64)1 << 62;
}

// Moves an operand by a number of bytes; the address field counts 16 bytes.
__device__ __forceinline__ u64 advance(u64 operand, u32 bytes) { return operand + (bytes >> 4); }

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
                 ", 0;\n"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGISTERS \
                 "}, %" #A ", %" #B ", p, 1, 1, " TRANSPOSED ";\n}\n"                           \
                 : __VA_ARGS__                                                                  \
                 : "l"(a), "l"(b), "r"(accumulate))

// D[64, N] (+)= A[64, 16] B, A in registers, B in shared memory: K-major for TRANSPOSED "0",
// MN-major for "1".
#define HOPPER_RS(TYPE, N, REGISTERS, A0, A1, A2, A3, B, P, TRANSPOSED, ...)                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P                                        \
                 ", 0;\n"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGISTERS \
                 "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", p, 1, 1, " TRANSPOSED      \
                 ";\n}\n"                                                                       \
                 : __VA_ARGS__                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))

#define HOPPER_BY_DTYPE(INSTRUCTION, ...) \
    if constexpr (kDtype == Dtype::bf16)  \
        INSTRUCTION("bf16", __VA_ARGS__); \
    else                                  \
        INSTRUCTION("f16", __VA_ARGS__)

// Scores: `kColumns` keys against 64 queries, 16 elements of the head dimension a call.
// `accumulate` of 0 overwrites `d`.
template <Dtype kDtype, int kColumns>
__device__ __forceinline__ void wgmma_ss(float (&d)[kColumns / 2], u64 a, u64 b, int accumulate) {
    static_assert(kColumns == 64 || kColumns == 128 || kColumns == 176,
                  "add the instruction for this tile");
    if constexpr (kColumns == 64) {
        HOPPER_BY_DTYPE(HOPPER_SS, 64, HOPPER_R32_0, 32, 33, 34, "0, 0", HOPPER_F32(d, 0));
    } else if constexpr (kColumns == 128) {
        HOPPER_BY_DTYPE(HOPPER_SS, 128, HOPPER_R32_0 "," HOPPER_R32_1, 64, 65, 66, "0, 0",
                        HOPPER_F64(d, 0));
    } else {
        HOPPER_BY_DTYPE(HOPPER_SS, 176, HOPPER_R32_0 "," HOPPER_R32_1 "," HOPPER_R24_64, 88, 89, 90,
                        "0, 0", HOPPER_F64(d, 0), HOPPER_F16(d, 64), HOPPER_F8(d, 80));
    }
}

// Both operands MN-major: 16 rows of [16][64] times 16 rows of [16][64], contracted along
// the rows.
template <Dtype kDtype>
__device__ __forceinline__ void wgmma_ss_transposed(float (&d)[32], u64 a, u64 b, int accumulate) {
    HOPPER_BY_DTYPE(HOPPER_SS, 64, HOPPER_R32_0, 32, 33, 34, "1, 1", HOPPER_F32(d, 0));
}

// The same with the queries in registers; K-major keys.
template <Dtype kDtype, int kColumns>
__device__ __forceinline__ void wgmma_rs(float (&d)[kColumns / 2], const u32* a, u64 b,
                                         int accumulate) {
    static_assert(kColumns == 128, "add the instruction for this tile");
    HOPPER_BY_DTYPE(HOPPER_RS, 128, HOPPER_R32_0 "," HOPPER_R32_1, 64, 65, 66, 67, 68, 69, "0",
                    HOPPER_F64(d, 0));
}

// Output: 64 rows of probabilities times 16 rows of V, which is MN-major; always adds.
template <Dtype kDtype, int kColumns>
__device__ __forceinline__ void wgmma_rs_transposed(float (&d)[kColumns / 2], const u32* a, u64 b) {
    static_assert(kColumns == 64 || kColumns == 128, "add the instruction for this head_dim");
    constexpr int accumulate = 1;
    if constexpr (kColumns == 64) {
        HOPPER_BY_DTYPE(HOPPER_RS, 64, HOPPER_R32_0, 32, 33, 34, 35, 36, 37, "1", HOPPER_F32(d, 0));
    } else {
        HOPPER_BY_DTYPE(HOPPER_RS, 128, HOPPER_R32_0 "," HOPPER_R32_1, 64, 65, 66, 67, 68, 69, "1",
                        HOPPER_F64(d, 0));
    }
}

}  // namespace hopper
