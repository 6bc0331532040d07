"""Table options: the registry with types and defaults, and the validation rules."""

from paimon_orch.format.options.typed_options import Options

__all__ = ["Options"]
