"""The exporter as one file for nodes without our package: modules -> stormpetrel-exporter.pyz.

A zip archive that Python runs. The same sources give the same bytes: fixed times, fixed order, nothing compressed.
"""

from __future__ import annotations

import io
import os
import pkgutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from stormpetrel.exporter.proc_stat import ExporterError

MODULES: Final = (
    "__init__", "__main__", "bindings", "check", "command", "exporter", "files",
    "job_groups", "one_file", "proc_stat", "processes", "readings", "sampler", "server",
)  # fmt: skip
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
_MAIN: Final = b"from stormpetrel.exporter.command import main\n\nraise SystemExit(main())\n"
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)


def one_file() -> bytes:
    """The archive."""
    content = {"__main__.py": _MAIN, "stormpetrel/__init__.py": _source("stormpetrel", "__init__")}
    for module in MODULES:
        content[f"stormpetrel/exporter/{module}.py"] = _source("stormpetrel.exporter", module)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for name, source in content.items():
            about = zipfile.ZipInfo(name, _LONG_AGO)
            about.external_attr = 0o644 << 16
            about.create_system = 3  # Unix, wherever it is made
            packed.writestr(about, source)
    return _SHEBANG + archive.getvalue()


def write_one_file(path: Path) -> int:
    """Write the archive, whole or not at all, as a program; its size in bytes."""
    content = one_file()
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(number, "wb") as out:
                out.write(content)
            Path(name).chmod(0o755)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise
    except OSError as error:
        raise ExporterError(
            f"{path} cannot be written: {(error.strerror or str(error)).lower()}. Choose another place."
        ) from error
    return len(content)


def _source(package: str, module: str) -> bytes:
    source = pkgutil.get_data(package, f"{module}.py")
    if source is None:
        raise ExporterError(f"The source of {package}.{module} is not installed. Reinstall stormpetrel.")
    return source
