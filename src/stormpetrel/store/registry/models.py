"""The registry of models: one folder per version, and in SQL which version is current.

save functions -> add_together -> Training -> promote_training, rollback, prune. Models of one training belong together (a model
of jobs reads the profiles that were made with it), so they are entered, made current, taken back and deleted together. A version
is written whole, then entered, then made current: a training that dies half-way changes nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.errors import ModelError, ModelFormatError, NotThereError
from stormpetrel.records.model_families import family_of, how_to_train
from stormpetrel.records.times import moment_of
from stormpetrel.store.filesystem import writing
from stormpetrel.store.registry.entries import FILES, KEYED, SEAL, Entry, folder_digest, is_sealed, sealed, write_entry
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import audit
from stormpetrel.store.state_tables import models as table

PROMOTE: Final = "models promote"  # what stands in the audit trail
ROLLBACK: Final = "models rollback"
KEPT_TRAININGS: Final = 10
_LIST: Final = "See which there are: stormpetrel models list"
_INCOMPLETE: Final = ".making-*"


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version of one model."""

    name: str
    version: int
    created: str
    about: Mapping[str, Any]
    current: bool
    seal: str = ""  # empty where an earlier version of Stormpetrel entered it
    files_digest: str = ""

    @property
    def family(self) -> str:
        """What the name begins with: `jobs` for `jobs-submit`."""
        return family_of(self.name)


@dataclass(frozen=True, slots=True)
class NewModel:
    """A model that is to be entered: how to write it to a folder, and what is to be known about it."""

    save: Callable[[Path], None]
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Training:
    """Models that were trained together and are used together, under a name such as `jobs-7`."""

    name: str
    models: tuple[ModelVersion, ...]

    @property
    def family(self) -> str:
        """What the name begins with: `jobs` for `jobs-7`."""
        return family_of(self.name)

    @property
    def current(self) -> bool:
        """Whether these are the models in use."""
        return all(model.current for model in self.models)

    @property
    def created(self) -> str:
        """When it was entered, as ISO text."""
        return max(model.created for model in self.models)

    @property
    def why(self) -> str:
        """Why it was made current, or why not: one sentence for people."""
        return str(self._noted("why") or "")

    @property
    def previous(self) -> str | None:
        """The training that was in use before this one; None where this was the first, or was never in use."""
        previous = self._noted("previous")
        return None if previous is None else str(previous)

    @property
    def trained_until(self) -> datetime:
        """Up to when the jobs were known that any of its models has seen."""
        times = [model.about["trained_until"] for model in self.models if model.about.get("trained_until")]
        # Earlier releases did not note it: they learnt from everything that was there when they were made.
        return max(moment_of(str(text)) for text in times or [self.created])

    def model(self, name: str) -> ModelVersion | None:
        """One of its models; None where it was not trained."""
        return next((model for model in self.models if model.name == name), None)

    @property
    def promoted(self) -> Mapping[str, str] | None:
        """When (`time`) and by what (`action`) it was last put in use; None where it never was, or nobody noted it."""
        promoted: Mapping[str, str] | None = self._noted("promoted")
        return promoted

    def _noted(self, key: str) -> Any:
        return next((model.about[key] for model in self.models if model.about.get(key) is not None), None)


class ModelRegistry:
    """The models of a site."""

    def __init__(self, folder: Path, state: StateStore, key: bytes) -> None:
        self._folder = folder
        self._state = state
        self._key = key

    def add(self, name: str, save: Callable[[Path], None], about: Mapping[str, Any]) -> ModelVersion:
        """Save a new version of a model that stands alone and enter it; it is not current yet."""
        return self.add_together({name: NewModel(save, about)}).models[0]

    def add_together(self, models: Mapping[str, NewModel], *, promoted_by: str | None = None, action: str = PROMOTE) -> Training:
        """Save new versions of the models of one training and enter them, all or none.

        With `promoted_by` (the user for the audit trail) they become current in the same transaction.
        """
        (family,) = {family_of(name) for name in models}
        with self._state.writer_lock():
            known = self.versions()
            number = 1 + max((_number(training.name) for training in _trainings(known) if training.family == family), default=0)
            training = f"{family}-{number}"
            created = datetime.now(UTC).isoformat(timespec="seconds")
            entries = []
            for name, new in models.items():
                version = max((entry.version for entry in known if entry.name == name), default=0) + 1
                self._save(self.folder_of(name, version), new.save)
                entries.append(ModelVersion(name, version, created, {**new.about, "training": training}, current=False))
            self._enter(entries, known, promoted_by, action)
        return self.training(training)

    def _save(self, folder: Path, save: Callable[[Path], None]) -> None:
        with writing(self._folder, doing="save a model"):
            if folder.exists():  # left behind by a training that died before it was entered
                shutil.rmtree(folder)
            save(folder)

    def _enter(self, entries: Sequence[ModelVersion], known: list[ModelVersion], promoted_by: str | None, action: str) -> None:
        rows: list[dict[str, Any]] = [
            {
                "name": e.name,
                "version": e.version,
                "created": e.created,
                "about": self._sealed(e, e.about, folder_digest(self.folder_of(e.name, e.version))),
                "current": False,
            }
            for e in entries
        ]
        entered = [self._version(**row) for row in rows]
        with self._state.transaction() as connection:
            connection.execute(sa.insert(table), rows)
            if promoted_by is not None:
                (training,) = _trainings(entered)
                before = _in_use(_trainings(known), training.family)
                self._make_current(connection, training, before, user=promoted_by, action=action)
        self._note_in_folder(str(entries[0].about["training"]))

    def _note_in_folder(self, training: str) -> None:
        """Keep what the registry now says of a training next to its models, for the day when the registry is lost."""
        for model in self.training(training).models:
            entry = Entry(model.name, model.version, model.created, model.about)
            write_entry(self.folder_of(model.name, model.version), entry)

    def promote(self, name: str, version: int, *, user: str = "") -> None:
        """Make a version current, and with it the models that were trained together with it."""
        for training in self.trainings():
            if any((model.name, model.version) == (name, version) for model in training.models):
                self.promote_training(training.name, user=user)
                return
        raise ModelError(f"There is no version {version} of the model '{name}'.", hint=how_to_train(family_of(name)))

    def promote_training(self, name: str, *, user: str, action: str = PROMOTE) -> Training:
        """Make the models of a training current, and no others of their family, in one transaction.

        The folders are not examined: who calls has loaded the models before.
        """
        with self._state.writer_lock():
            training = self.training(name)
            before = self.current_training(training.family)
            with self._state.transaction() as connection:
                self._make_current(connection, training, before, user=user, action=action)
            self._note_in_folder(name)
        return self.training(name)

    def before_current(self, family: str) -> Training:
        """The training that was in use before the current one; ModelError where there is none to go back to."""
        current = self.current_training(family)
        if current is None:
            raise ModelError(f"The site has no model of '{family}' in use.", hint=how_to_train(family))
        if current.previous is None:
            raise ModelError(f"There is nothing to go back to: nothing was in use before {current.name}.", hint=_LIST)
        try:
            return self.training(current.previous)
        except NotThereError:
            raise ModelError(f"{current.previous}, in use before {current.name}, is no longer kept.", hint=_LIST) from None

    def rollback(self, family: str, *, user: str) -> Training:
        """Make the training current that was in use before the one that is; which."""
        with self._state.writer_lock():
            current, target = self.current_training(family), self.before_current(family)
            with self._state.transaction() as connection:
                # Where it came from stays as it was: rolling back once more goes on backwards, not forwards again.
                self._make_current(connection, target, current, user=user, action=ROLLBACK, note_previous=False)
            self._note_in_folder(target.name)
        return self.training(target.name)

    def prune(self, keep: int = KEPT_TRAININGS, *, spare: Collection[str] = ()) -> list[str]:
        """Delete all but the newest trainings of each family; never the one in use, the one before, nor `spare`. Their names."""
        with self._state.writer_lock():
            known = self.trainings()
            kept = set(spare)
            for family in {training.family for training in known}:
                names = [training.name for training in known if training.family == family]
                current = self.current_training(family)
                kept |= {*names[-max(1, keep) :], *((current.name, current.previous) if current else ())}
            gone = [training for training in known if training.name not in kept]
            with self._state.transaction() as connection:  # rows first: a row without its folder could be promoted
                for model in (model for training in gone for model in training.models):
                    connection.execute(sa.delete(table).where(table.c.name == model.name, table.c.version == model.version))
            self._delete_left_behind()
        return [training.name for training in gone]

    def _delete_left_behind(self) -> None:
        """Folders older than the newest entered version that no row knows of, and what a killed training had not finished."""
        entered: dict[str, set[int]] = {}
        for version in self.versions():
            entered.setdefault(version.name, set()).add(version.version)
        with writing(self._folder, doing="delete old models"):
            for name, versions in entered.items():
                folders = (self._folder / name).glob("[0-9]*")
                old = [f for f in folders if f.name.isdigit() and int(f.name) < max(versions) and int(f.name) not in versions]
                for folder in [*old, *(self._folder / name).glob(_INCOMPLETE)]:
                    shutil.rmtree(folder)

    def trainings(self, family: str | None = None) -> list[Training]:
        """Every training (of one family), oldest first."""
        return [training for training in _trainings(self.versions()) if family in (None, training.family)]

    def training(self, name: str) -> Training:
        """A training by its name; NotThereError where there is none."""
        for training in self.trainings():
            if training.name == name:
                return training
        raise NotThereError(f"There is no training {name[:80]!r}.", hint=_LIST)

    def current_training(self, family: str) -> Training | None:
        """The training in use; None where there is none."""
        return _in_use(self.trainings(), family)

    def promoted_by(self, name: str) -> str | None:
        """Who put a training in use last, by the audit trail; None where it does not say, or the user was forgotten."""
        noted = audit.c.about.startswith(json.dumps({"training": name})[:-1] + ",", autoescape=True)
        query = sa.select(audit.c.user).where(noted).order_by(audit.c.id.desc()).limit(1)
        with self._state.transaction() as connection:
            return connection.execute(query).scalar() or None

    def versions(self, name: str | None = None) -> list[ModelVersion]:
        """Every version of a model (of all models if none is named), oldest first."""
        query = sa.select(table).order_by(table.c.name, table.c.version)
        if name is not None:
            query = query.where(table.c.name == name)
        with self._state.transaction() as connection:
            return [self._version(**row._mapping) for row in connection.execute(query)]

    def in_use(self) -> dict[str, ModelVersion]:
        """The current version of every model, all as of one moment."""
        return {version.name: version for version in self.versions() if version.current}

    def current(self, name: str) -> ModelVersion:
        """The version in use; ModelError says how to make one where there is none."""
        for version in reversed(self.versions(name)):
            if version.current:
                return version
        raise ModelError(f"The site has no model '{name}' yet.", hint=how_to_train(family_of(name)))

    def folders(self) -> dict[tuple[str, int], Path]:
        """Every folder of a version that lies there, entered or not, by name and version."""
        paths = sorted(path for path in self._folder.glob("*/[0-9]*") if path.name.isdigit() and path.is_dir())
        return {(path.parent.name, int(path.name)): path for path in paths}

    def folder_of(self, name: str, version: int) -> Path:
        """Where a version lies; whoever reads a model of the site asks for its `verified_folder`."""
        return self._folder / name / f"{version:05d}"

    def verified_folder(self, name: str, version: int) -> Path:
        """Where a version lies whose entry and files are those that this site entered; ModelFormatError where they are not."""
        folder = self.folder_of(name, version)
        entry = next((entry for entry in self.versions(name) if entry.version == version), None)
        if entry is None:
            raise ModelError(f"There is no version {version} of the model '{name}'.", hint=how_to_train(family_of(name)))
        changed = entry.seal and folder.exists() and folder_digest(folder) != entry.files_digest
        if changed or not self._is_trusted(entry):
            raise _not_entered_here(entry)
        return folder

    def sign_unsigned(self) -> int:
        """Seal the entries that have no seal, as they and their files are now, and refuse such entries from now on; how many."""
        unsigned = [entry for entry in self.versions() if not entry.seal]
        if unsigned:
            with self._state.writer_lock(), self._state.transaction() as connection:
                for entry in unsigned:
                    about = self._sealed(entry, entry.about, folder_digest(self.folder_of(entry.name, entry.version)))
                    connection.execute(sa.update(table).where(*_row_of(entry)).values(about=about))
        self._state.set_fact(KEYED, "1")
        return len(unsigned)

    def sign_unsigned_once(self) -> None:
        """Seal what earlier versions entered, the first time that this version sees the registry."""
        if not self._state.fact(KEYED):
            self.sign_unsigned()

    def _version(self, *, name: str, version: int, created: str, about: str, current: bool) -> ModelVersion:
        kept = json.loads(about)
        rest = {field: value for field, value in kept.items() if field not in (FILES, SEAL)}
        return ModelVersion(name, version, created, rest, bool(current), str(kept.get(SEAL, "")), str(kept.get(FILES, "")))

    def _sealed(self, entry: ModelVersion, about: Mapping[str, Any], files: str) -> str:
        return sealed(self._key, entry.name, entry.version, entry.created, about, files)

    def _is_trusted(self, entry: ModelVersion) -> bool:
        """Whether the seal is ours; an entry without one is trusted where the registry has not been sealed yet."""
        if not entry.seal:
            return not self._state.fact(KEYED)
        kept = {**entry.about, FILES: entry.files_digest, SEAL: entry.seal}
        return is_sealed(self._key, entry.name, entry.version, entry.created, kept)

    def _make_current(
        self,
        connection: sa.Connection,
        training: Training,
        before: Training | None,
        *,
        user: str,
        action: str,
        note_previous: bool = True,
    ) -> None:
        family = training.family
        names = [name for name in connection.execute(sa.select(table.c.name).distinct()).scalars() if family_of(name) == family]
        connection.execute(sa.update(table).where(table.c.name.in_(names)).values(current=False))
        came_from = before.name if before is not None and before.name != training.name else None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        noted: dict[str, Any] = {"promoted": {"time": now, "action": action}}  # by whom stands in the audit trail only
        if note_previous and came_from is not None:
            noted["previous"] = came_from
        for model in training.models:
            if not self._is_trusted(model):
                raise _not_entered_here(model)
            files = model.files_digest or folder_digest(self.folder_of(model.name, model.version))
            about = self._sealed(model, {**model.about, **noted}, files)
            connection.execute(sa.update(table).where(*_row_of(model)).values(current=True, about=about))
        about = json.dumps({"training": training.name, "previous": came_from, "why": training.why})
        connection.execute(sa.insert(audit).values(time=now, user=user, action=action, about=about))


def _number(training: str) -> int:
    digits = training.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _trainings(versions: Iterable[ModelVersion]) -> list[Training]:
    """Versions grouped by the training that made them, by family and number."""
    groups: dict[str, list[ModelVersion]] = {}
    ungrouped: dict[str, list[list[ModelVersion]]] = {}
    for version in sorted(versions, key=lambda entry: (entry.created, entry.version)):
        if "training" in version.about:
            groups.setdefault(str(version.about["training"]), []).append(version)
            continue
        # Earlier releases did not note the training, but each entered a new version of everything it made, one after the other.
        of_family = ungrouped.setdefault(version.family, [[]])
        if any(entry.name == version.name for entry in of_family[-1]):
            of_family.append([])
        of_family[-1].append(version)
    for family, several in ungrouped.items():
        for group in several:
            groups.setdefault(f"{family}-{max(entry.version for entry in group)}", []).extend(group)
    ordered = sorted(groups, key=lambda name: (family_of(name), _number(name)))
    return [Training(name, tuple(groups[name])) for name in ordered]


def _in_use(trainings: Sequence[Training], family: str) -> Training | None:
    of_family = [training for training in reversed(trainings) if training.family == family]
    whole = next((training for training in of_family if training.current), None)
    return whole or next((training for training in of_family if any(model.current for model in training.models)), None)


def _row_of(entry: ModelVersion) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return table.c.name == entry.name, table.c.version == entry.version


def _not_entered_here(entry: ModelVersion) -> ModelFormatError:
    return ModelFormatError(
        f"Version {entry.version} of the model '{entry.name}' is not the one that this site entered: entry or files changed.",
        hint="Go back to another training (stormpetrel models list), train anew, or restore the site from a backup.",
    )
