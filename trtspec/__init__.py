# SPDX-License-Identifier: Apache-2.0
"""One YAML file in, a measured and lossless speculative-decoding deployment out."""

__version__ = "0.1.0"
