"""Opens buckets with the reader of their kind of table."""

from collections.abc import Mapping, Sequence

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.files.file_index_reader import TopRowsOrLimit
from paimon_orch.format.table_kind import TableKind
from paimon_orch.format.types.data_types import Field
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table.bucket_readers.append_reader import AppendReader, DataEvolutionBucketReader
from paimon_orch.table.bucket_readers.bucket_reader import BucketReader
from paimon_orch.table.bucket_readers.primary_key_reader import PrimaryKeyReader
from paimon_orch.table.scan.bucket_split import BucketSplit

_READERS: Mapping[TableKind, type[BucketReader]] = {
    TableKind.APPEND: AppendReader,
    TableKind.ROW_TRACKING: AppendReader,
    TableKind.DATA_EVOLUTION: DataEvolutionBucketReader,
    TableKind.PRIMARY_KEY: PrimaryKeyReader,
}


def open_bucket(
    reader: FileReader,
    split: BucketSplit,
    fields: Sequence[Field],
    predicate: Predicate | None = None,
    first: TopRowsOrLimit | None = None,
    *,
    may_stop: bool = False,
) -> BucketReader:
    """Return the reader of a bucket; see :class:`BucketReader` for the parameters."""
    kind = _READERS[reader.schema.kind]
    return kind(reader, split, fields, predicate, first, may_stop=may_stop)
