"""Native CPU kernels: one C++ file, compiled by the build with the system's compiler into ``kernels.so``.

Without them the runtime uses torch alone (same results up to rounding, slower on CPUs whose bfloat16 matrix products
torch emulates). Nothing here imports torch.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.cpp")
LIBRARY = "kernels.so"
ABI = 1  # kernels_abi() of the source; a library that answers otherwise is not used


def compile_argv(compiler: str, out: str) -> list[str]:
    """The compiler's command line; no -ffast-math, which would let a row's result depend on its neighbours."""
    flags = ["-O3", "-march=native", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
    return [compiler, *flags, "-fopenmp", "-fPIC", "-fvisibility=hidden", "-shared", "-o", out, str(SOURCE)]
