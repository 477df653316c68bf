// 16-bit tensor-core tiles: swizzled shared memory, ldmatrix, mma.sync m16n8k16.
//
// A tile lies row by row in chunks of 16 bytes, and chunk c of row r is stored at
// chunk c ^ (r % 8). The 8 rows that one ldmatrix phase reads at one column then lie in
// 8 different groups of four banks, with no padding (CUTLASS's Swizzle<3, 3, 3>).
// Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16".
#pragma once

#include "problem.cuh"

namespace mma {

/// c += A·B of 16×16 times 16×8 elements.
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1) {
    if constexpr (IS_BF16<T>) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

/// As load_matrices, each of the four transposed.
__device__ __forceinline__ void load_transposed(unsigned (&m)[4], unsigned shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared)
                 : "memory");
}

/// Byte offset of (row, column) in a swizzled tile of `COLUMNS` 16-bit columns;
/// `column` is a multiple of 8.
template <int COLUMNS>
__device__ __forceinline__ unsigned swizzled(int row, int column) {
    return row * COLUMNS * 2 + ((column / 8 ^ row % 8) << 4);
}

/// The address a lane gives ldmatrix for 16×16 blocks of a swizzled tile. A block 16 columns
/// further is at `start ^ 32`, since the swizzle is an exclusive or and tiles
/// are aligned to a row; a block 8·n rows further is at `start + 8·n·row bytes`.
///
/// Row-wise: matrices in the order (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15),
/// which is that of an A fragment read plainly, and of two B fragments read transposed.
template <int COLUMNS>
__device__ __forceinline__ unsigned lane_rows_first(int row, int column) {
    const int lane = threadIdx.x % 32;
    return swizzled<COLUMNS>(row + lane % 16, column + lane / 16 * 8);
}
/// Matrices in the order (rows 0-7, columns 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15): that of
/// two B fragments read plainly, and of an A fragment read transposed.
template <int COLUMNS>
__device__ __forceinline__ unsigned lane_columns_first(int row, int column) {
    const int lane = threadIdx.x % 32;
    return swizzled<COLUMNS>(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8);
}

/// Starts copying `ROWS` rows of a plane into a swizzled tile; rows from `rows` on and
/// columns from `columns` on become zero.
template <typename T, int D, int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(unsigned tile, const T* plane, long long stride, int row0,
                                          int rows, int columns) {
    constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS;
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "one swizzle a thread, whole chunks");
    const int row = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 8;
    const unsigned to = tile + swizzled<D>(row, column);
    const T* from = plane + (row0 + row) * stride + column;
    // Rows of this thread's column that exist, from its first on.
    const int existing = column < columns ? rows - row0 - row : 0;
#pragma unroll
    for (int part = 0; part < ROWS / STEP; ++part) {
        // The address is only formed if nothing is read.
        copy_async_16(to + part * STEP * D * 2, from, part * STEP < existing);
        from += STEP * stride;
    }
}

}  // namespace mma
