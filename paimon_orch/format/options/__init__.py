"""Table options: their register, their types and defaults, and the rules between them."""

from paimon_orch.format.options.typed_options import Options

__all__ = ["Options"]
