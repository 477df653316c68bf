"""Stands in for TransformerEngine where there is no GPU: its calls, computed with torch.

Signatures, attribute names, and what is compared, cached and freed are those of 2.20.2;
attention is computed in float32 on whatever device the tensors lie.
"""
