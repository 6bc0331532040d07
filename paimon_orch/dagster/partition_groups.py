"""Groups of partition keys that one Dagster run can process."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from paimon_orch.orchestration.partition_keys import DIMENSION_SEPARATOR


def group_partition_keys(
    keys: Collection[str], dimensions: Sequence[Sequence[str]], limit: int
) -> list[tuple[str, ...]]:
    """Return groups of at most ``limit`` keys that one Dagster run can process.

    A run of several partitions names the first and the last one. Dagster adds all keys between them
    in the order of the definition; for two dimensions, it adds the combinations of the values
    between them in each dimension.

    ``dimensions`` are all values of one or two dimensions in the order of the definition. Groups
    and their keys have this order. Keys that the definition does not have are omitted.
    """
    # A single dimension is one row.
    rows, columns = dimensions if len(dimensions) > 1 else ([""], dimensions[0])
    row_positions = {value: position for position, value in enumerate(rows)}
    column_positions = {value: position for position, value in enumerate(columns)}
    columns_by_row = defaultdict[int, list[int]](list)
    for key in set(keys):
        row, _, column = (
            key.rpartition(DIMENSION_SEPARATOR) if len(dimensions) > 1 else ("", "", key)
        )
        if row in row_positions and column in column_positions:
            columns_by_row[row_positions[row]].append(column_positions[column])
    return [
        tuple(
            DIMENSION_SEPARATOR.join(values) if len(dimensions) > 1 else values[1]
            for values in product(
                rows[block.first_row : block.last_row + 1],
                columns[block.first_column : block.last_column + 1],
            )
        )
        for block in _find_blocks(columns_by_row, limit)
    ]


@dataclass(slots=True)
class _Block:
    """Neighboring rows with the same columns; both ends are included."""

    first_row: int
    last_row: int
    first_column: int
    last_column: int

    def can_add_row(self, row: int, limit: int) -> bool:
        """Return whether a row follows the last one and the block remains within the limit."""
        width = self.last_column - self.first_column + 1
        return row == self.last_row + 1 and (row - self.first_row + 1) * width <= limit


def _find_blocks(columns_by_row: dict[int, list[int]], limit: int) -> list[_Block]:
    blocks = list[_Block]()
    newest = dict[tuple[int, int], _Block]()
    for row in sorted(columns_by_row):
        for first, last in _find_runs(sorted(columns_by_row[row]), limit):
            block = newest.get((first, last))
            if block is not None and block.can_add_row(row, limit):
                block.last_row = row
            else:
                block = newest[first, last] = _Block(row, row, first, last)
                blocks.append(block)
    return blocks


def _find_runs(positions: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last of consecutive positions, at most ``limit`` of them."""
    first = previous = positions[0]
    for position in positions[1:]:
        if position != previous + 1 or position - first >= limit:
            yield first, previous
            first = position
        previous = position
    yield first, previous
