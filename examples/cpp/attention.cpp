// Attention on a processor, in bshd: a function in C++ that anything can call.
#include <cmath>
#include <vector>

extern "C" void attention(const float *q, const float *k, const float *v, float *out, int batch,
                          int seq_q, int seq_k, int heads, int width, float scale) {
  std::vector<float> weight(seq_k);
  for (int row = 0; row < batch * seq_q * heads; ++row) {
    const long first = long(row / heads / seq_q) * seq_k * heads + row % heads;
    float total = 0, *mine = out + long(row) * width;
    for (int j = 0; j < seq_k; ++j) {
      float score = 0;
      for (int d = 0; d < width; ++d)
        score += q[long(row) * width + d] * k[(first + long(j) * heads) * width + d];
      total += weight[j] = std::exp(score * scale);
    }
    for (int d = 0; d < width; ++d) mine[d] = 0;
    for (int j = 0; j < seq_k; ++j)
      for (int d = 0; d < width; ++d)
        mine[d] += weight[j] / total * v[(first + long(j) * heads) * width + d];
  }
}
