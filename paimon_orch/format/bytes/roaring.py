"""Roaring bitmaps in their portable form.

Every writer run-optimizes a bitmap before storing it. Until then the bitmap must not contain run
containers: if an array and a run container have the same size, Java Paimon keeps the array, but it
never converts a run container to an array.

pyroaring reads and combines bitmaps. The code that writes many bitmaps in one pass is hand-written:
with pyroaring, it takes 2 to 5 times as long to build a bitmap index, 8 times as long to build a
range bitmap index, and twice as long to build a large deletion vector
(``benchmarks/hand_written.py``).

See docs/format/roaring-bitmaps.md.
"""

import array
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from paimon_orch.format.arrays import Int64Array, Mask, UInt8Array, UInt32Array

BLOCK_SIZE = 1 << 16
"""The number of positions that one container covers."""
_COOKIE_NO_RUNS = 12346
_COOKIE_RUNS = 12347
_NO_OFFSET_THRESHOLD = 4
_MAX_ARRAY = 4096  # a container with more positions is a bit set
_BIT_SET_BYTES = 8192
_POPCOUNTS = np.array([number.bit_count() for number in range(256)], np.uint8)
# groups of at least this size are serialized one by one with pyroaring, which is faster for them
_MIN_LARGE_GROUP = 256
_MIN_MASKED_POSITIONS = 512  # per block; pyroaring is as fast for blocks with fewer positions
_MASKED_BLOCKS = 64  # blocks per step; a step needs 4 MB of memory


def build_bitmap(positions: npt.NDArray[np.integer]) -> BitMap:
    """Return a bitmap of 32-bit positions, without run containers."""
    # pyroaring reads an array.array much faster than other sequences
    return BitMap(array.array("I", positions.astype(np.uint32, copy=False).tobytes()))


def build_bitmap_from_sorted(positions: Int64Array) -> BitMap:
    """Return a bitmap of ascending 32-bit positions, without run containers."""
    blocks = (int(positions[-1]) >> 16) + 1 if len(positions) else 0
    if len(positions) < _MIN_MASKED_POSITIONS * blocks or not blocks:
        return build_bitmap(positions)
    cuts = np.searchsorted(positions, np.arange(blocks + 1) << 16)
    keys = np.flatnonzero(np.diff(cuts))
    counts = np.diff(cuts)[keys]
    bodies = [
        body
        for first in range(0, blocks, _MASKED_BLOCKS)
        for body in _encode_containers(positions, cuts, first, min(_MASKED_BLOCKS, blocks - first))
    ]
    heads = (keys | (counts - 1) << 16).astype("<u4")
    sizes = np.where(counts > _MAX_ARRAY, _BIT_SET_BYTES, 2 * counts)
    offsets = 8 + 8 * len(keys) + np.cumsum(sizes) - sizes
    front = struct.pack("<II", _COOKIE_NO_RUNS, len(keys)) + heads.tobytes()
    return BitMap.deserialize(front + offsets.astype("<u4").tobytes() + b"".join(bodies))


def _encode_containers(
    positions: Int64Array, cuts: Int64Array, first: int, count: int
) -> Iterator[bytes]:
    """Yield the containers of non-empty 65536-bit blocks; block ``i`` begins at ``cuts[i]``."""
    block_positions = positions[cuts[first] : cuts[first + count]]
    mask = np.zeros(count << 16, bool)
    mask[block_positions - (first << 16) if first else block_positions] = True
    bits = np.packbits(mask, bitorder="little").reshape(count, _BIT_SET_BYTES)
    for block, packed in enumerate(bits, first):
        low, high = cuts[block : block + 2]
        if high - low > _MAX_ARRAY:
            yield packed.tobytes()
        elif high > low:
            yield positions[low:high].astype("<u2").tobytes()


def build_full_bitmap(count: int) -> BitMap:
    """Return the bitmap of ``0..count-1``; it has run containers and must not be stored."""
    bitmap = BitMap()
    if count:
        bitmap.add_range(0, count)
    return bitmap


def serialize_positions(positions: npt.NDArray[np.integer]) -> bytes:
    """Return positions as a run-optimized bitmap."""
    bitmap = build_bitmap(positions)
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def serialize_mask(mask: Mask) -> bytes:
    """Return the true positions of a mask as a run-optimized bitmap."""
    packed = np.packbits(mask, bitorder="little")
    packed = np.pad(packed, (0, -len(packed) % _BIT_SET_BYTES))
    words = packed.view("<u8").reshape(-1, _BIT_SET_BYTES // 8)
    after = words << np.uint64(1)  # a bit of ``after`` is set if the previous position is set
    after[:, 1:] |= words[:, :-1] >> np.uint64(63)
    blocks = packed.reshape(-1, _BIT_SET_BYTES)
    cardinality = _POPCOUNTS[blocks].sum(axis=1, dtype=np.int64)
    keys = np.flatnonzero(cardinality)
    cardinality = cardinality[keys]
    starts = (words[keys] & ~after[keys]).view(np.uint8)
    runs = _POPCOUNTS[starts].sum(axis=1, dtype=np.int64)
    is_set = cardinality > _MAX_ARRAY
    is_run = 2 + 4 * runs < np.where(is_set, _BIT_SET_BYTES, 2 * cardinality)
    forms = zip(blocks[keys], is_run.tolist(), is_set.tolist(), strict=True)
    bodies = [_encode_container(bits, is_run=run, is_set=big) for bits, run, big in forms]
    return assemble_portable_bitmap(keys, cardinality, is_run, bodies)


def assemble_portable_bitmap(
    keys: Int64Array,
    cardinality: Int64Array,
    is_run: Mask,
    bodies: Sequence[bytes],
) -> bytes:
    """Return the portable form of a bitmap; run containers begin with their run count."""
    heads: bytes = (keys | (cardinality - 1) << 16).astype("<u4").tobytes()
    if is_run.any():
        cookie = struct.pack("<I", (len(keys) - 1) << 16 | _COOKIE_RUNS)
        flags: bytes = np.packbits(is_run, bitorder="little").tobytes()
        front = cookie + flags + heads
    else:
        front = struct.pack("<II", _COOKIE_NO_RUNS, len(keys)) + heads
    if not is_run.any() or len(keys) >= _NO_OFFSET_THRESHOLD:
        sizes = np.array([len(body) for body in bodies], np.int64)
        offsets = len(front) + 4 * len(keys) + np.cumsum(sizes) - sizes
        front += offsets.astype("<u4").tobytes()
    return front + b"".join(bodies)


def _encode_container(bits: UInt8Array, *, is_run: bool, is_set: bool) -> bytes:
    """Encode 65536 bits as a container."""
    if is_set and not is_run:
        return bits.tobytes()
    low = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    if not is_run:
        return low.astype("<u2").tobytes()
    first = np.flatnonzero(np.diff(low, prepend=-2) != 1)
    lengths = np.diff(first, append=len(low)) - 1
    pairs = np.stack([low[first], lengths], axis=1).astype("<u2")
    return struct.pack("<H", len(first)) + pairs.tobytes()


class ContainerLocation(NamedTuple):
    """Location of the container of one block of 65536 positions in a stored bitmap."""

    block: int
    cardinality: int
    is_run: bool
    start: int
    end: int

    def bits(self, data: bytes) -> UInt8Array:
        """Return the block as bits, least significant first; ``data`` is a valid bitmap."""
        body = data[self.start : self.end]
        if not self.is_run and self.cardinality > _MAX_ARRAY:
            return np.frombuffer(body, np.uint8)
        if self.is_run:
            run_starts, run_extents = (
                np.frombuffer(body, "<u2", offset=2).reshape(-1, 2).astype(np.int64).T
            )
            edges = np.stack([run_starts, run_starts + run_extents + 1], axis=1).ravel()
            lengths = np.diff(edges, prepend=0, append=BLOCK_SIZE)
            mask = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
        else:
            mask = np.zeros(BLOCK_SIZE, bool)
            mask[np.frombuffer(body, "<u2")] = True
        return np.packbits(mask, bitorder="little")


def read_containers(data: bytes, position: int = 0) -> tuple[list[ContainerLocation], int]:
    """Return the containers of the portable bitmap at ``position``, and its end position.

    Only the header is read; the end may be greater than ``len(data)``.
    """
    (cookie,) = struct.unpack_from("<I", data, position)
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        flags = data[position + 4 : position + 4 + (count + 7) // 8]
        position += 4 + len(flags)
        has_offsets = count >= _NO_OFFSET_THRESHOLD
    elif cookie == _COOKIE_NO_RUNS:
        (count,) = struct.unpack_from("<I", data, position + 4)
        flags = b""
        position += 8
        has_offsets = True
    else:
        raise ValueError(f"a bitmap has the unknown cookie {cookie}")
    if count > 1 << 16:
        raise ValueError(f"a bitmap cannot have {count} containers")
    heads = struct.unpack_from(f"<{2 * count}H", data, position)
    position += 4 * count + (4 * count if has_offsets else 0)
    containers = []
    for index, (block, less_one) in enumerate(zip(heads[::2], heads[1::2], strict=True)):
        is_run = bool(flags and flags[index // 8] >> index % 8 & 1)
        if is_run:
            size = 2 + 4 * int(struct.unpack_from("<H", data, position)[0])
        else:
            size = 2 * (less_one + 1) if less_one < _MAX_ARRAY else _BIT_SET_BYTES
        containers.append(ContainerLocation(block, less_one + 1, is_run, position, position + size))
        position += size
    return containers, position


def read_serialized_size(data: bytes, position: int) -> int:
    """Return the length of the portable bitmap at ``position``, from its header."""
    return read_containers(data, position)[1] - position


def deserialize_bitmap(data: bytes, limit: int) -> BitMap:
    """Return a stored bitmap. Raises ``ValueError`` for positions of ``limit`` and above."""
    if not data:  # for which pyroaring raises IndexError
        raise ValueError("a bitmap is empty")
    bitmap = BitMap.deserialize(data)  # raises ValueError for damage
    if bitmap and bitmap.max() >= limit:
        raise ValueError(f"a bitmap contains position {bitmap.max()}, but there are {limit} rows")
    return bitmap


def serialize_groups(
    positions: npt.NDArray[np.integer], starts: Int64Array
) -> tuple[bytes, Int64Array]:
    """Return the concatenated run-optimized bitmaps of many groups, and the length of each.

    Group ``i`` holds ``positions[starts[i]:starts[i + 1]]``, ascending; the last group extends
    to the end. No group is empty.
    """
    counts = np.diff(starts, append=len(positions))
    is_large = counts >= _MIN_LARGE_GROUP
    if is_large.all():
        bodies = [
            serialize_positions(positions[s : s + n]) for s, n in zip(starts, counts, strict=True)
        ]
        return b"".join(bodies), np.array([len(body) for body in bodies], np.int64)
    is_small_position = np.repeat(~is_large, counts)
    small_counts = counts[~is_large]
    small = _serialize_small_groups(
        positions[is_small_position], np.cumsum(small_counts) - small_counts, small_counts
    )
    if not is_large.any():
        return small
    lengths = np.empty(len(starts), np.int64)
    lengths[~is_large] = small[1]
    ends = np.concatenate([[0], np.cumsum(small[1])])
    parts, written = [], 0
    for large_before, index in enumerate(np.flatnonzero(is_large)):
        body = serialize_positions(positions[starts[index] : starts[index] + counts[index]])
        lengths[index] = len(body)
        small_before = int(index) - large_before  # number of small groups before this group
        parts += [small[0][ends[written] : ends[small_before]], body]
        written = small_before
    return b"".join([*parts, small[0][ends[written] :]]), lengths


def _serialize_small_groups(
    positions: npt.NDArray[np.integer],
    starts: Int64Array,
    counts: Int64Array,
) -> tuple[bytes, Int64Array]:
    """Serialize groups that are too small for bit set containers."""
    values: UInt32Array = np.asarray(positions, np.uint32)
    high = values >> np.uint32(16)
    is_container = np.empty(len(values), bool)
    is_container[:1] = True
    np.not_equal(high[1:], high[:-1], out=is_container[1:])
    is_container[starts] = True
    is_run = np.empty(len(values), bool)
    is_run[:1] = True
    np.not_equal(values[1:], values[:-1] + np.uint32(1), out=is_run[1:])
    is_run |= is_container
    container_starts = np.flatnonzero(is_container)
    cardinality = np.diff(container_starts, append=len(values))
    within_run = np.flatnonzero(~is_run)
    run_containers = container_starts.searchsorted(within_run, side="right") - 1
    runs = cardinality - np.bincount(run_containers, minlength=len(container_starts))
    first_containers = container_starts.searchsorted(starts)
    layout = _GroupLayout(
        values,
        starts,
        counts,
        container_starts,
        cardinality,
        first_containers,
        np.diff(first_containers, append=len(container_starts)),
    )
    stored_as_runs = 2 + 4 * runs < 2 * cardinality
    if not stored_as_runs.any():
        return _write_arrays(layout)
    return _write_arrays_and_runs(layout, is_run, runs, stored_as_runs)


class _GroupLayout(NamedTuple):
    """Groups of positions, divided into containers."""

    positions: UInt32Array
    starts: Int64Array  # index of the first position of each group
    counts: Int64Array  # number of positions of each group
    container_starts: Int64Array  # index of the first position of each container
    cardinality: Int64Array  # number of positions of each container
    first_containers: Int64Array  # index of the first container of each group
    containers: Int64Array  # number of containers of each group


def _write_arrays(groups: _GroupLayout) -> tuple[bytes, Int64Array]:
    """Write bitmaps that have only array containers, in 16-bit words."""
    containers = groups.containers
    words = 4 + 4 * containers + groups.counts
    begin = np.cumsum(words) - words
    out = np.empty(int(words.sum()), "<u2")
    # a 32-bit number can start at any 16-bit word, so the elements of this array overlap
    pairs = np.ndarray((max(0, len(out) - 1),), "<u4", out, strides=(2,))
    pairs[begin] = _COOKIE_NO_RUNS
    pairs[begin + 2] = containers
    head = np.repeat(begin + 4 - 2 * groups.first_containers, containers) + 2 * np.arange(
        len(groups.container_starts)
    )
    high = groups.positions[groups.container_starts] >> np.uint32(16)
    pairs[head] = high | (groups.cardinality - 1).astype(np.uint32) << np.uint32(16)
    word_offsets = groups.container_starts + np.repeat(
        4 + 4 * containers - groups.starts, containers
    )
    pairs[head + 2 * np.repeat(containers, containers)] = 2 * word_offsets
    body = np.repeat(begin + 4 + 4 * containers - groups.starts, groups.counts)
    body += np.arange(len(body))
    out[body] = groups.positions.astype(np.uint16)
    return out.tobytes(), 2 * words


def _write_arrays_and_runs(
    groups: _GroupLayout,
    is_run: Mask,
    runs: Int64Array,
    stored_as_runs: Mask,
) -> tuple[bytes, Int64Array]:
    """Write bitmaps with array and run containers, bytewise because they may be unaligned."""
    starts, first = groups.container_starts, groups.first_containers
    containers = groups.containers
    payload = np.where(stored_as_runs, 2 + 4 * runs, 2 * groups.cardinality)
    group = np.repeat(np.arange(len(first)), containers)  # group of each container
    number = np.arange(len(starts)) - first[group]  # index of each container in its group
    with_runs = np.logical_or.reduceat(stored_as_runs, first)
    with_offsets = ~with_runs | (containers >= _NO_OFFSET_THRESHOLD)
    head = np.where(with_runs, 4 + (containers + 7) // 8, 8)
    front = head + 4 * containers + 4 * containers * with_offsets
    payload_begins = np.cumsum(payload) - payload
    sizes = front + np.add.reduceat(payload, first)
    begin = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), np.uint8)
    _write_numbers(
        out, begin, np.where(with_runs, (containers - 1) << 16 | _COOKIE_RUNS, _COOKIE_NO_RUNS), 4
    )
    _write_numbers(out, begin[~with_runs] + 4, containers[~with_runs], 4)
    flagged = np.flatnonzero(stored_as_runs)
    flags = begin[group[flagged]] + 4 + number[flagged] // 8
    np.bitwise_or.at(out, flags, (1 << number[flagged] % 8).astype(np.uint8))
    high = groups.positions[starts].astype(np.int64) >> 16
    keys = (begin + head)[group] + 4 * number
    _write_numbers(out, keys, high | (groups.cardinality - 1) << 16, 4)
    # these offsets are relative to the start of the group
    payload_offsets = front[group] + payload_begins - payload_begins[first][group]
    listed = with_offsets[group]
    _write_numbers(out, (keys + 4 * containers[group])[listed], payload_offsets[listed], 4)
    body = begin[group] + payload_offsets
    _write_numbers(out, body[stored_as_runs], runs[stored_as_runs], 2)
    _write_payloads(out, groups, body=body, is_run=is_run, stored_as_runs=stored_as_runs)
    return out.tobytes(), sizes


def _write_payloads(
    out: UInt8Array, groups: _GroupLayout, body: Int64Array, is_run: Mask, stored_as_runs: Mask
) -> None:
    """Write positions of array containers, and counts and runs of run containers, at ``body``."""
    starts = groups.container_starts
    low = (groups.positions & np.uint32(0xFFFF)).astype(np.int64)
    container = np.repeat(np.arange(len(starts)), groups.cardinality)  # container of each position
    array_items = np.flatnonzero(~stored_as_runs[container])
    _write_numbers(
        out,
        body[container[array_items]] + 2 * (array_items - starts[container[array_items]]),
        low[array_items],
        2,
    )
    run = np.flatnonzero(is_run)
    length = np.diff(run, append=len(low))
    order = np.arange(len(run)) - run.searchsorted(starts)[container[run]]  # index in container
    is_listed = stored_as_runs[container[run]]
    target = body[container[run]] + 2 + 4 * order
    _write_numbers(out, target[is_listed], low[run][is_listed] | (length[is_listed] - 1) << 16, 4)


def _write_numbers(
    out: UInt8Array,
    positions: Int64Array,
    values: Int64Array,
    size: int,
) -> None:
    """Write little-endian numbers of ``size`` bytes at ``positions``."""
    for byte in range(size):
        out[positions + byte] = values >> 8 * byte & 0xFF
