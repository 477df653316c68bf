// A libcuda.so.1 that has no device behind it: memory is the host's, kernels do nothing,
// and it fails as MOCK_CUDA tells it to. So that what the cuda worker says of a missing,
// old, full or lost device is tested where there is none.
//
//   no-device   cuInit answers CUDA_ERROR_NO_DEVICE
//   old         the device is a Turing, compute capability 7.5
//   busy        another program holds all but 1 MiB of the memory
//   full        memory runs out when it is asked for
//   lost        the first allocation of a case finds the context destroyed
//   lost-once   as lost, but only in the first process; MOCK_CUDA_STATE names a file
//   lost-for-good   as lost-once, and later processes find no device
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Pointer;
enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_SUPPORTED = 801, OUT_OF_MEMORY = 2, NO_DEVICE = 100, ILLEGAL_ADDRESS = 700 };

static int is(const char *mode) {
    const char *set = getenv("MOCK_CUDA");
    return set && strcmp(set, mode) == 0;
}

static FILE *state(const char *how) {
    const char *path = getenv("MOCK_CUDA_STATE");
    return path ? fopen(path, how) : NULL;
}

static int was_lost(void) {
    FILE *file = state("r");
    if (file) fclose(file);
    return file != NULL;
}

int cuInit(unsigned flags) {
    if (is("no-device") || (is("lost-for-good") && was_lost())) return NO_DEVICE;
    return SUCCESS;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == NO_DEVICE       ? "CUDA_ERROR_NO_DEVICE"
            : code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                      : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}
int cuGetErrorString(int code, const char **words) { return cuGetErrorName(code, words); }

int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = 0, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) {
    return snprintf(name, length, "Mock GPU"), SUCCESS;
}
int cuDeviceGetPCIBusId(char *id, int length, int device) {
    return snprintf(id, length, "0000:00:00.0"), SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 16ull << 30, SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 16: *value = 132; break;       // multiprocessors
        case 38: *value = 1 << 20; break;   // level-2 cache
        case 75: *value = is("old") ? 7 : 9; break;
        case 76: *value = is("old") ? 5 : 0; break;
        case 97: *value = 232448; break;    // shared memory a block may have
        default: *value = 1;
    }
    return SUCCESS;
}

static int context;
int cuDevicePrimaryCtxRetain(void **made, int device) { return *made = &context, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuCtxGetCurrent(void **current) { return *current = &context, SUCCESS; }
int cuCtxSetCurrent(void *wanted) { return SUCCESS; }
int cuCtxGetDevice(int *device) { return *device = 0, SUCCESS; }
int cuCtxSynchronize(void) { return SUCCESS; }
int cuCtxResetPersistingL2Cache(void) { return SUCCESS; }
int cuCtxSetLimit(int limit, size_t bytes) { return is("old") ? 215 : SUCCESS; }
int cuStreamCreate(void **stream, unsigned flags) { return *stream = &context, SUCCESS; }
int cuStreamDestroy_v2(void *stream) { return SUCCESS; }
int cuStreamSynchronize(void *stream) { return SUCCESS; }
int cuStreamWaitValue32_v2(void *stream, Pointer at, unsigned value, unsigned flags) {
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *total = 16ull << 30;
    *free = is("busy") ? 1 << 20 : 15ull << 30;
    return SUCCESS;
}
int cuMemAlloc_v2(Pointer *pointer, size_t bytes) {
    if (is("full")) return OUT_OF_MEMORY;
    if (is("lost")) return ILLEGAL_ADDRESS;
    if ((is("lost-once") || is("lost-for-good")) && !was_lost()) {
        FILE *file = state("w");
        if (file) fclose(file);
        return ILLEGAL_ADDRESS;
    }
    *pointer = (Pointer)calloc(bytes, 1);
    return *pointer ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFree_v2(Pointer pointer) { return free((void *)pointer), SUCCESS; }
int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    return (*pointer = calloc(bytes, 1)) ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *pointer) { return free(pointer), SUCCESS; }
int cuMemHostGetDevicePointer_v2(Pointer *device, void *host, unsigned flags) {
    return *device = (Pointer)host, SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) {
    return memcpy(to, (void *)from, bytes), SUCCESS;
}
int cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) {
    return memcpy((void *)to, from, bytes), SUCCESS;
}
int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *stream) {
    return memcpy((void *)to, (void *)from, bytes), SUCCESS;
}
int cuMemsetD8Async(Pointer to, unsigned char byte, size_t bytes, void *stream) {
    return memset((void *)to, byte, bytes), SUCCESS;
}
int cuMemsetD32Async(Pointer to, unsigned word, size_t words, void *stream) { return SUCCESS; }

int cuEventCreate(void **event, unsigned flags) { return *event = &context, SUCCESS; }
int cuEventRecord(void *event, void *stream) { return SUCCESS; }
int cuEventSynchronize(void *event) { return SUCCESS; }
int cuEventElapsedTime(float *ms, void *start, void *stop) { return *ms = 0.002f, SUCCESS; }
int cuEventDestroy_v2(void *event) { return SUCCESS; }

int cuModuleLoadData(void **module, const void *image) { return *module = &context, SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return *function = &context, SUCCESS;
}
// MOCK_CUDA_PARAMETERS: sizes of what every kernel takes, "8 8 4"; without it nothing is told.
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
    const char *told = getenv("MOCK_CUDA_PARAMETERS");
    if (!told) return NOT_SUPPORTED;
    for (size_t at = 0; *told; at++) {
        char *end;
        unsigned long found = strtoul(told, &end, 10);
        if (end == told) break;
        if (at == index) return *offset = 0, *size = found, SUCCESS;
        told = end;
    }
    return INVALID_VALUE;
}
int cuModuleUnload(void *module) { return SUCCESS; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return SUCCESS; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { return *value = 32, SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                size_t shared) {
    return *blocks = 1, SUCCESS;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **arguments, void **extra) {
    return SUCCESS;
}
int cuTensorMapEncodeTiled(void) { return SUCCESS; }

int cuStreamBeginCapture_v2(void *stream, int mode) { return SUCCESS; }
int cuStreamEndCapture(void *stream, void **graph) { return *graph = &context, SUCCESS; }
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    return *exec = &context, SUCCESS;
}
int cuGraphDestroy(void *graph) { return SUCCESS; }
int cuGraphLaunch(void *exec, void *stream) { return SUCCESS; }
int cuGraphExecDestroy(void *exec) { return SUCCESS; }
