"""As the package exports them: its module `dot_product_attention` has the package's own name."""

from .dot_product_attention import DotProductAttention, _attention_backends

__all__ = ["DotProductAttention", "_attention_backends"]
