"""What its users import."""

from transformer_engine.pytorch.attention.dot_product_attention import DotProductAttention
from transformer_engine.pytorch.quantization import autocast

__all__ = ["DotProductAttention", "autocast"]
