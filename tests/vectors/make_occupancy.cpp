// Makes occupancy.txt: blocks a multiprocessor holds at once, by NVIDIA's own formula.
//
//     g++ -I CUDA/include tests/vectors/make_occupancy.cpp -o make_occupancy
//     ./make_occupancy > tests/vectors/occupancy.txt
//
// CUDA/include/cuda_occupancy.h needs no GPU: it is told a device's properties. Those
// below are of the table "Technical Specifications per Compute Capability" in the CUDA C++
// Programming Guide. A line: capability, threads, registers a thread, static and dynamic
// shared memory in bytes, barriers; blocks.
#include <cstdio>
#include <random>

#include <cuda_occupancy.h>

struct Capability {
    int major, minor, threads, shared_kib;
};

int main() {
    const Capability capabilities[] = {
        {8, 0, 2048, 164},  {8, 6, 1536, 100},  {8, 7, 1536, 164},  {8, 9, 1536, 100},
        {9, 0, 2048, 228},  {10, 0, 2048, 228}, {10, 3, 2048, 228}, {11, 0, 1536, 228},
        {12, 0, 1536, 100}, {12, 1, 1536, 100},
    };
    std::mt19937 random(20260101);
    auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (const Capability& c : capabilities) {
        cudaOccDeviceProp device;
        device.computeMajor = c.major;
        device.computeMinor = c.minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = c.threads;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = c.shared_kib * 1024;
        device.sharedMemPerBlockOptin = (c.shared_kib - 1) * 1024;
        device.reservedSharedMemPerBlock = 1024;
        device.numSms = 1;
        for (int i = 0; i < 60; ++i) {
            // Round numbers as kernels have them, and odd ones.
            const int threads = i % 3 ? 32 * (1 + below(i % 2 ? 8 : 32)) : 1 + below(1024);
            const int registers = i % 4 ? 8 * (1 + below(i % 3 ? 12 : 31)) : 1 + below(255);
            const int shared = i % 5 ? below(c.shared_kib * (i % 3 ? 64 : 512)) : 128 * below(c.shared_kib * 8 + 8);
            const int fixed = i % 2 ? 0 : below(4096);
            const int barriers = i % 6 ? 1 : below(17);
            cudaOccFuncAttributes kernel;
            kernel.maxThreadsPerBlock = 1024;
            kernel.numRegs = registers;
            kernel.sharedSizeBytes = fixed;
            kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
            kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
            kernel.maxDynamicSharedSizeBytes = shared;
            kernel.numBlockBarriers = barriers;
            cudaOccDeviceState state;
            cudaOccResult result;
            if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads,
                                                        shared) != CUDA_OCC_SUCCESS)
                return 1;
            std::printf("%d.%d %d %d %d %d %d %d\n", c.major, c.minor, threads, registers, fixed,
                        shared, barriers, result.activeBlocksPerMultiprocessor);
        }
    }
}
