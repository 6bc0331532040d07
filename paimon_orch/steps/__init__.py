"""Steps: maintenance of one table, and row-level changes.

This package exports the functions for users; its modules are internal. Names are imported on first
use, as steps need different parts of the library; ``__init__.pyi`` has them, for type checkers too.
:mod:`paimon_orch.steps.common.step` describes how a step works.
"""

from paimon_orch.lazy_exports import export_lazily

__getattr__, __dir__ = export_lazily(__name__)
