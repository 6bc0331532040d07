"""Types of numpy arrays, named by content or by element type."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Positions: TypeAlias = npt.NDArray[np.int64]
"""0-based row positions in a data file or batch; ascending unless stated otherwise."""

Indices: TypeAlias = npt.NDArray[np.int64]
"""Indices into arrays or columns."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""One boolean per row or item."""

UInt8Array: TypeAlias = npt.NDArray[np.uint8]
Int8Array: TypeAlias = npt.NDArray[np.int8]
Int16Array: TypeAlias = npt.NDArray[np.int16]
Int32Array: TypeAlias = npt.NDArray[np.int32]
UInt32Array: TypeAlias = npt.NDArray[np.uint32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
Float64Array: TypeAlias = npt.NDArray[np.float64]
SignedIntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
AnyArray: TypeAlias = npt.NDArray[Any]
