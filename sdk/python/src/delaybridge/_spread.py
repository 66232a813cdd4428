"""The share that a message gets of a ``spread``: by a hash of its identity, the same in every language."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def share(key: str, id: str, over_ms: int) -> int:
    """Milliseconds from 0 up to over_ms (exclusive)."""
    return xxh64(f"{key}\0{id}\0spread".encode()) * max(over_ms, 0) >> 64


def xxh64(data: bytes) -> int:
    """XXH64 with the seed 0."""
    end = len(data) // 32 * 32
    if end:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        for i in range(0, end, 8):
            lane = i // 8 % 4
            lanes[lane] = _round(lanes[lane], _word(data, i, 8))
        h = sum(_rotate(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        h = _P5
    h = (h + len(data)) & _MASK
    return _avalanche(_rest(h, data, end))


def _rest(h: int, data: bytes, i: int) -> int:
    """Takes in what is left of 32 bytes."""
    while i + 8 <= len(data):
        h = (_rotate(h ^ _round(0, _word(data, i, 8)), 27) * _P1 + _P4) & _MASK
        i += 8
    if i + 4 <= len(data):
        h = (_rotate(h ^ (_word(data, i, 4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        i += 4
    for byte in data[i:]:
        h = _rotate(h ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return h


def _avalanche(h: int) -> int:
    h = (h ^ h >> 33) * _P2 & _MASK
    h = (h ^ h >> 29) * _P3 & _MASK
    return h ^ h >> 32


def _round(acc: int, word: int) -> int:
    return _rotate((acc + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotate(x: int, n: int) -> int:
    return (x << n | x >> 64 - n) & _MASK


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
