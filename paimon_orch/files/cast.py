"""Values of one type as another, as an ALTER TABLE allows (format section 9.4)."""

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrow import arrow_type
from paimon_orch.format.types import AtomicType, DataType


def cast(array: pa.Array, old: DataType, new: AtomicType) -> pa.Array:
    """Return values of one type as a simple one."""
    target = arrow_type(new)
    if isinstance(array.type, pa.TimestampType) and isinstance(target, pa.TimestampType):
        return truncated(array, target.unit).cast(pa.timestamp(target.unit, tz=array.type.tz)).view(target)
    return pc.cast(array, target, safe=False)


def truncated(array: pa.Array, unit: str) -> pa.Array:
    """Round timestamps down to a unit, so that a cast to it loses nothing silently."""
    names = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
    return pc.floor_temporal(array, unit=names[unit])
