"""Random numbers that depend on (seed, position, purpose) alone: never on batch neighbours, draft length or history."""

from __future__ import annotations

# Purposes: each decision about one output position draws from its own stream.
DRAFT, ACCEPT, CHOOSE = 1, 2, 3

_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    """The SplitMix64 finaliser (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def uniform(seed: int, position: int, purpose: int) -> float:
    """In [0, 1), 53 bits; ``position`` is the index of the output token that the decision is about."""
    return (_mix(_mix(_mix(seed & _MASK) ^ position) ^ (purpose << 32)) >> 11) * 2.0**-53
