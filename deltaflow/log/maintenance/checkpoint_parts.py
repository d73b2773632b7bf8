"""The part of a multi-part checkpoint that holds a row: Spark's hash partitioning by path.

PROTOCOL.md, "Multi-part checkpoint": all writers have to distribute the rows of a version alike, since parts
of several writers may lie side by side.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_SEED = 42
_WORD = pa.uint32()


def part_of_other_actions(parts: int) -> int:
    """The part, counted from 0, of the rows that have no path."""
    return _SEED % parts


def parts_of_paths(paths: pa.StringArray, parts: int) -> pa.Array:
    """For each path the part, counted from 0, of its row."""
    # Spark's hash is a signed integer, and its remainder (pmod) is never negative.
    hashes = murmur3(paths).cast(pa.int64())
    signed = pc.if_else(pc.greater(hashes, 2**31 - 1), pc.subtract(hashes, 2**32), hashes)
    remainder = pc.subtract(signed, pc.multiply(pc.divide(signed, parts), parts))
    return pc.if_else(pc.less(remainder, 0), pc.add(remainder, parts), remainder)


def murmur3(texts: pa.StringArray) -> pa.Array:
    """Spark's hash of strings (org.apache.spark.unsafe.hash.Murmur3_x86_32) as uint32.

    Unlike in the standard hash, each byte after the last whole word is mixed in as a word of its own.
    """
    raw = texts.cast(pa.binary())
    lengths = pc.binary_length(raw).cast(_WORD)
    hashes = pa.repeat(pa.scalar(_SEED, _WORD), len(raw))
    longest = pc.max(lengths).as_py() or 0
    whole = pc.divide(lengths, _u32(4))
    for word in range(longest // 4):
        octets = [_octet(raw, 4 * word + index) for index in range(4)]
        key = octets[0]
        for index, octet in enumerate(octets[1:], start=1):
            key = pc.bit_wise_or(key, pc.shift_left(octet, _u32(8 * index)))
        hashes = pc.if_else(pc.greater(whole, _u32(word)), _mixed(hashes, key), hashes)
    tails = pc.multiply(whole, _u32(4))
    for index in range(3):
        positions = pc.add(tails, _u32(index))
        octet = _octets_at(raw, positions)
        key = pc.if_else(pc.greater(octet, _u32(127)), pc.bit_wise_or(octet, _u32(0xFFFFFF00)), octet)
        hashes = pc.if_else(pc.less(positions, lengths), _mixed(hashes, key), hashes)
    return _finished(hashes, lengths)


def _octet(raw: pa.BinaryArray, position: int) -> pa.Array:
    """The byte at a position of each value; 0 beyond its end."""
    return _octets_at(raw, pa.repeat(pa.scalar(position, _WORD), len(raw)))


def _octets_at(raw: pa.BinaryArray, positions: pa.Array) -> pa.Array:
    _, offsets, data = raw.buffers()
    if data is None or data.size == 0:
        return pa.repeat(pa.scalar(0, _WORD), len(raw))
    starts = pa.Array.from_buffers(pa.int32(), len(raw), [None, offsets], offset=raw.offset)
    octets = pa.Array.from_buffers(pa.uint8(), data.size, [None, data])
    indices = pc.min_element_wise(
        pc.add(starts.cast(pa.int64()), positions.cast(pa.int64())), pa.scalar(data.size - 1, pa.int64())
    )
    return octets.take(indices).cast(_WORD)


def _mixed(hashes: pa.Array, key: pa.Array) -> pa.Array:
    key = pc.multiply(key, _u32(0xCC9E2D51))
    key = pc.multiply(_rotated(key, 15), _u32(0x1B873593))
    hashes = _rotated(pc.bit_wise_xor(hashes, key), 13)
    return pc.add(pc.multiply(hashes, _u32(5)), _u32(0xE6546B64))


def _finished(hashes: pa.Array, lengths: pa.Array) -> pa.Array:
    hashes = pc.bit_wise_xor(hashes, lengths)
    hashes = pc.multiply(_folded(hashes, 16), _u32(0x85EBCA6B))
    hashes = pc.multiply(_folded(hashes, 13), _u32(0xC2B2AE35))
    return _folded(hashes, 16)


def _folded(values: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_xor(values, pc.shift_right(values, _u32(bits)))


def _rotated(values: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(values, _u32(bits)), pc.shift_right(values, _u32(32 - bits)))


def _u32(value: int) -> Any:
    return pa.scalar(value, _WORD)
