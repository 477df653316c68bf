"""Memory-efficient backward of xFormers issue 1176, 20 steps; `--splits -1` is the bug."""
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--splits", type=int)
splits = parser.parse_args().splits
torch.manual_seed(0)
q, k, v, dout = (torch.randn(1, 10000, 1, 32, device="cuda") for _ in range(4))
aten = torch.ops.aten
for step in range(20):
    out, lse, seed, offset, mq, mk = aten._efficient_attention_forward(q, k, v, None, None, None, None, None, 0.0, 0, True)
    aten._efficient_attention_backward(dout, q, k, v, None, out, None, None, mq, mk, lse, 0.0, seed, offset, 0, False, num_splits_key=splits)
torch.cuda.synchronize()
