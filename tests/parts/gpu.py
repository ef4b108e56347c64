"""Tests that need a GPU: they are left out where there is none, also in CI, which has none.

`TRITON_INTERPRET=1` runs those whose kernels Triton's interpreter can run (`-k compiled`), where Triton is installed.
"""

import os
from importlib.util import find_spec


def leave_out_where_there_is_no_gpu(config, items):
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu or _has_gpu() or os.environ.get("TRITON_INTERPRET") == "1":
        return
    config.hook.pytest_deselected(items=on_gpu)
    items[:] = [item for item in items if not item.get_closest_marker("gpu")]


def _has_gpu():
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
