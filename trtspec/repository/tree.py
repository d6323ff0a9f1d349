"""A model repository as a value: relative path -> text, until ``write`` puts it on the disk in one move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtspec.repository.write import write_tree


@dataclass(frozen=True)
class Repository:
    files: Mapping[str, str]

    @property
    def models(self) -> list[str]:
        return sorted({path.split("/", 1)[0] for path in self.files if path.endswith("/config.pbtxt")})

    def write(self, path: Path) -> None:
        """Replaces its specs' models at ``path`` by these, or nothing. Raises StoreError for a folder not ours."""
        write_tree(self.files, path)
