"""A watched site whose disk fills up."""

from datetime import timedelta

import pytest

from stormpetrel.errors import DiskFullError
from stormpetrel.lifecycle.job_models import train_job_models
from stormpetrel.watch.loop import Watch
from tests.parts import mounts
from tests.parts.watched_site import TRAINED, copy_site, move_clock


@pytest.fixture
def disk(tmp_path):
    with mounts.small_disk(tmp_path / "disk", size="64m") as folder:
        yield folder


@pytest.mark.root
def test_a_watch_whose_disk_is_full_says_so_and_goes_on_where_it_was_when_there_is_space(begun, sacct, disk):
    with copy_site(begun, disk / "site", sacct=sacct) as site:
        watch = Watch(site)
        watch.step()
        move_clock(site, TRAINED + timedelta(hours=6))
        mounts.fill(disk)
        with pytest.raises(DiskFullError, match=f"the disk tmpfs at {disk} "):
            watch.step()
        (disk / "ballast").unlink()
        step = watch.step()
        assert step.read.new > 0 and step.predictions.height > 0


@pytest.mark.root
def test_a_training_onto_a_full_disk_names_the_disk_and_changes_nothing(prepared, disk):
    with copy_site(prepared, disk / "site") as site:
        before = site.models.in_use()
        mounts.fill(disk)
        with pytest.raises(DiskFullError, match=f"the disk tmpfs at {disk} "):
            train_job_models(site, until=TRAINED)
        assert site.models.in_use() == before
