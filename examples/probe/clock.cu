// A program in C++ that times its own kernel with regatta's clock.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "regatta_probe.h"

__global__ void scale(float *data, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    data[i] *= 1.0001f;
}

int main() {
  const int warmup = 3, samples = 100;
  float *data;
  cudaStream_t stream;
  std::vector<double> times(samples);
  regatta_probe *probe = nullptr;
  if (cudaStreamCreate(&stream) || cudaMalloc(&data, sizeof(float) << 24)) return 2;
  int failed = regatta_probe_open(0, stream, &probe);
  for (int i = -warmup; i < samples && !failed; ++i) {
    failed = regatta_probe_sample_begin(probe, 1);  // 1: the L2 cache is flushed
    if (failed) break;
    scale<<<1024, 256, 0, stream>>>(data, 1 << 24);
    failed = regatta_probe_sample_end(probe, &times[std::max(i, 0)], nullptr, nullptr, nullptr);
  }
  if (failed) return fprintf(stderr, "%s\n", regatta_probe_last_error()), 1;
  std::sort(times.begin(), times.end());
  printf("%.2f us, median of %d; probe %s\n", times[samples / 2] / 1e3, samples, regatta_probe_version());
  regatta_probe_close(probe);
}
