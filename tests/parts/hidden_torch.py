"""Python as it is where torch is not installed: for what must run without it, also on a machine that has it."""

from __future__ import annotations

from typing import Final

# Put before a program: torch is neither found nor imported, and nothing else is different.
HIDE_TORCH: Final = """
import sys

class _WithoutTorch:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [_WithoutTorch(finder) for finder in sys.meta_path]
"""
