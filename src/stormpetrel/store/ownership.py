"""Whose a folder is, and who else can change it.

A site.toml names commands that are run and servers that are sent tokens: whoever can write it decides what we do.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from stormpetrel.errors import SettingsError

_GROUP, _OTHERS = 0o020, 0o002
_ROOT: Final = 0


def who_else_can_write(folder: Path, name: str) -> str:
    """Who besides us and root can change a file of a folder, in words; empty where nobody can.

    Looks at the file, its folder and every folder above. Bits for a group or for others count only where they can get there. In
    a folder with the sticky bit (`/tmp`) others can make files, but cannot move ours.
    """
    place = folder.resolve()
    if (place / name).is_symlink():  # its own owner could point it elsewhere; then what it points to counts
        whose = (place / name).lstat().st_uid
        target = (place / name).resolve()
        foreign = whose not in (os.geteuid(), _ROOT)
        return f"{place / name} belongs to {user_name(whose)}" if foreign else who_else_can_write(target.parent, target.name)
    group, others = True, True  # whether they can reach what we look at
    for at in [*reversed(place.parents), place, place / name]:
        status = at.stat()
        if status.st_uid not in (os.geteuid(), _ROOT):
            return f"{at} belongs to {user_name(status.st_uid)}"
        held = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX) and at != place
        if others and status.st_mode & _OTHERS and not held:
            return f"everybody can write to {at}"
        if group and status.st_mode & _GROUP and not held:
            return f"a group can write to {at}"
        group, others = group and bool(status.st_mode & 0o011), others and bool(status.st_mode & 0o001)
    return ""


def owner_other_than_us(folder: Path, name: str) -> str:
    """The user, other than us and root, that a folder or a file in it belongs to; empty where there is none."""
    others = (status.st_uid for _, status in _readable(folder, name) if status.st_uid not in (os.geteuid(), _ROOT))
    return next(map(user_name, others), "")


def refuse_writable_by_everybody(folder: Path, name: str) -> None:
    """SettingsError where a site's folder or settings can be written by just anybody."""
    for path, status in _readable(folder, name):
        if status.st_mode & _OTHERS and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            raise SettingsError(
                f"Everybody can write to {path}, and so decide which commands this site runs.", hint=f"Run: chmod o-w {path}"
            )


def _readable(folder: Path, name: str) -> Iterator[tuple[Path, os.stat_result]]:
    """A folder and a file in it with their status, without those that cannot be read."""
    for path in (folder, folder / name):
        with suppress(OSError):
            yield path, path.stat()


def refuse_folder_of_another(folder: Path) -> None:
    """SettingsError where an empty folder that is to become a site belongs to somebody else, who could open it again."""
    if folder.exists() and folder.stat().st_uid != os.geteuid():
        owner = user_name(folder.stat().st_uid)
        raise SettingsError(
            f"{folder} belongs to {owner}: a site holds a key and names, and must be its user's own.",
            hint=f"Name a folder that does not exist yet, or run this as {owner}.",
        )


def user_name(uid: int) -> str:
    """The name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"
