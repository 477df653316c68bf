// A program in C++ that times its own kernel with regatta's clock.
#include <algorithm>
#include <cstdio>

#include "regatta_probe.h"

__global__ void scale(float *data, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    data[i] *= 1.0001f;
}

struct Call { float *data; cudaStream_t stream; };

static int call(void *given) {
  const Call &mine = *static_cast<Call *>(given);
  scale<<<1024, 256, 0, mine.stream>>>(mine.data, 1 << 24);
  return cudaGetLastError();
}

int main() {
  Call mine;
  double ns[100], host[100];
  uint32_t count = 0;
  regatta_probe *probe = nullptr;
  if (cudaStreamCreate(&mine.stream) || cudaMalloc(&mine.data, sizeof(float) << 24)) return 2;
  const regatta_probe_plan plan = {3, 100, 10, 1, 0, 2000};  // cold L2, no graph, at most 2 s
  if (regatta_probe_open(0, mine.stream, &probe) || regatta_probe_measure(probe, call, &mine, &plan, nullptr, ns, host, nullptr, nullptr, &count))
    return fprintf(stderr, "%s\n", regatta_probe_last_error()), 1;
  std::sort(ns, ns + count);
  printf("%.2f us, median of %u; probe %s\n", ns[count / 2] / 1e3, count, regatta_probe_version());
  regatta_probe_close(probe);
}
