"""How much memory is free, and how many tokens of KV cache that is good for."""

from __future__ import annotations

from pathlib import Path

import torch

from trtspec.errors import CheckpointError

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Free bytes of the device; on a CPU what the kernel calls available, within the control group's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = 4 << 30  # where nothing can be read
    if MEMINFO.exists():
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if limit.exists() and used.exists():
        text = limit.read_text().strip()
        if text != "max":
            available = min(available, max(int(text) - int(used.read_text()), 0))
    return available


def kv_capacity(asked: int | None, bytes_per_token: int, max_seq_len: int, max_batch_size: int, free: int) -> int:
    """Tokens of KV memory: what is asked, else what half of ``free`` holds; never more than the batch can use.

    One longest request always fits: raises CheckpointError when even that does not.
    """
    if asked is not None:
        return max(asked, max_seq_len)
    fits = free // 2 // bytes_per_token
    if fits < max_seq_len:
        raise CheckpointError(
            f"one request of {max_seq_len} tokens needs {max_seq_len * bytes_per_token} bytes of KV memory; half of "
            f"the free memory is {free // 2}",
            where="limits.max_seq_len",
            hint="lower limits.max_seq_len, or set limits.kv_tokens to use more than half of the free memory",
        )
    return min(fits, max_seq_len * max_batch_size)
