// Attention in bshd, a block of threads for each query of each head.
extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out,
                                     int seq_q, int seq_k, int heads, int width, float scale) {
  extern __shared__ float weight[];
  const long row = blockIdx.x, first = row / heads / seq_q * seq_k * heads + row % heads;
  for (int j = threadIdx.x; j < seq_k; j += blockDim.x) {
    float score = 0;
    for (int d = 0; d < width; ++d)
      score += q[row * width + d] * k[(first + (long)j * heads) * width + d];
    weight[j] = expf(score * scale);
  }
  __syncthreads();
  for (int d = threadIdx.x; d < width; d += blockDim.x) {
    float total = 0, sum = 0;
    for (int j = 0; j < seq_k; ++j) {
      total += weight[j];
      sum += weight[j] * v[(first + (long)j * heads) * width + d];
    }
    out[row * width + d] = sum / total;
  }
}
