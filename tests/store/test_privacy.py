"""What must not stay, and what must not come back."""

import json
from pathlib import Path

import pytest

from stormpetrel.errors import StoreError, UsageError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.upkeep import forget
from tests.builders import SACCT_FIELDS, Job, make_site, sacct_line, table_of, write_sacct


def take(site, path):
    return ingest_jobs(site, SacctText(path))


def set_in(folder, before, after):
    path = folder / "site.toml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def test_forgetting_a_user_does_not_take_another_whose_name_contains_it(tmp_path):
    (tmp_path / "log").write_text("\n".join([SACCT_FIELDS, sacct_line(Job(user="ann")), "annabel|damaged", "ann|damaged"]) + "\n")
    with make_site(tmp_path / "site") as site:
        take(site, tmp_path / "log")
        forget(site, "ann")
        assert site.quarantine.read().select("raw").collect()["raw"].to_list() == ["annabel|damaged"]
        assert site.state.past_ingests()[0]["read"] == 3, "the record of the ingest can still be read"


def test_a_refused_line_of_a_forgotten_user_is_counted_without_its_text(tmp_path):
    with make_site(tmp_path / "site") as site:
        forget(site, "mallory")
        (tmp_path / "log").write_text("\n".join([SACCT_FIELDS, sacct_line(Job()), "mallory|damaged"]) + "\n")
        report = take(site, tmp_path / "log")
        assert dict(report.quarantined) == {"wrong_column_count": 1}
        assert "mallory" not in json.dumps(report.as_dict())
        assert "mallory" not in str(site.quarantine.read().collect().rows())


def shifted(path, user):
    """A log in which a column has moved: where the run time should be, a user is named."""
    words = sacct_line(Job()).split("|")
    words[SACCT_FIELDS.split("|").index("Elapsed")] = user
    path.write_text("\n".join([SACCT_FIELDS, "|".join(words)]) + "\n")
    return path


def test_a_value_that_cannot_be_read_and_names_a_forgotten_user_is_counted_without_its_text(tmp_path):
    with make_site(tmp_path / "site") as site:
        forget(site, "mallory")
        report = take(site, shifted(tmp_path / "log", "mallory"))
        assert report.unread.counts == {"elapsed_s": 1}
        assert "mallory" not in json.dumps(report.as_dict()) + json.dumps(site.state.past_ingests())


def test_forgetting_a_user_takes_the_examples_of_values_that_name_him(tmp_path):
    with make_site(tmp_path / "site") as site:
        take(site, shifted(tmp_path / "log", "mallory"))
        assert "mallory" in json.dumps(site.state.past_ingests())
        forget(site, "mallory")
        assert "mallory" not in json.dumps(site.state.past_ingests())
        assert site.state.past_ingests()[0]["unread"] == {"elapsed_s": 1}


def test_a_site_without_names_remembers_no_text_of_a_value_that_cannot_be_read(tmp_path):
    with make_site(tmp_path / "site", store={"pseudonymise_users": True}) as site:
        take(site, shifted(tmp_path / "log", "mallory"))
        assert "mallory" not in json.dumps(site.state.past_ingests()) + json.dumps(site.state.dump()["meta"])
        assert table_of(site)["extra"].to_list() == [None]


def test_groups_and_accounts_named_after_their_user_become_pseudonyms_too(tmp_path):
    (tmp_path / "log").write_text(
        "JobID|Submit|State|User|Group|Account\n1|2024-03-04T08:00:00|COMPLETED|ada|ada|ada\n2|2024-03-04T08:00:00|COMPLETED|bo|staff|lab\n"
    )
    with make_site(tmp_path / "site", store={"pseudonymise_users": True}) as site:
        take(site, tmp_path / "log")
        rows = table_of(site).select("user", "group", "account").rows()
    assert rows[0][0] == rows[0][1] == rows[0][2] != "ada"
    assert rows[1][1:] == ("staff", "lab")


def test_a_user_is_forgotten_under_both_forms_of_the_name(tmp_path):
    with make_site(tmp_path / "site") as site:
        take(site, write_sacct(tmp_path / "a", [Job(user="mallory"), Job(job_id=2, user="bo")]))
    set_in(tmp_path / "site", "pseudonymise_users = false", "pseudonymise_users = true")
    with open_site(tmp_path / "site") as site:
        take(site, write_sacct(tmp_path / "b", [Job(job_id=3, user="mallory")]))
        assert forget(site, "mallory") == 2
        assert table_of(site)["job_id"].to_list() == [2]
        assert take(site, tmp_path / "b").quarantined["forgotten_user"] == 1


def test_a_backup_restored_beside_the_living_site_leaves_its_state_alone(tmp_path):
    with make_site(tmp_path / "site", store={"state_dir": str(tmp_path / "local")}) as site:
        take(site, write_sacct(tmp_path / "a", [Job()]))
        backup(site, tmp_path / "site.tar")
        take(site, write_sacct(tmp_path / "b", [Job(job_id=2)]))
        with pytest.raises(UsageError, match="in use"):
            restore(tmp_path / "site.tar", tmp_path / "copy", state_dir=str(tmp_path / "local"))
        assert not (tmp_path / "copy").exists()
        with restore(tmp_path / "site.tar", tmp_path / "copy") as copy:
            assert (tmp_path / "copy" / "state.db").exists() and not copy.settings.store.state_dir
            assert table_of(copy).height == 1
            assert len(copy.state.past_ingests()) == 1
        assert len(site.state.past_ingests()) == 2


def test_a_state_store_of_another_site_is_refused(tmp_path):
    make_site(tmp_path / "one", store={"state_dir": str(tmp_path / "local")}).close()
    with pytest.raises(StoreError, match="belongs to another site"):
        make_site(tmp_path / "two", store={"state_dir": str(tmp_path / "local")})


def test_a_user_forgotten_while_an_ingest_runs_does_not_come_back(tmp_path):
    with make_site(tmp_path / "site") as site, open_site(tmp_path / "site") as other:
        source = SacctText(write_sacct(tmp_path / "a", [Job(user="mallory"), Job(job_id=2, user="bo")]))
        chunks = source.chunks()

        def interrupted():
            yield from chunks
            forget(other, "mallory")  # while the last rows wait for their commit

        source.chunks = interrupted
        report = ingest_jobs(site, source)
        assert report.quarantined["forgotten_user"] == 1
        assert table_of(site)["user"].to_list() == ["bo"]


def test_a_relative_state_dir_counts_from_the_site(tmp_path, monkeypatch):
    with make_site(tmp_path / "site", store={"state_dir": "st"}) as site:
        forget(site, "mallory")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with open_site(Path("../site")) as site:
        assert take(site, write_sacct(tmp_path / "a", [Job(user="mallory")])).quarantined["forgotten_user"] == 1
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("user", ["jörg", 'kim"lee', "DOM\\kim", "kim.lee"])
def test_names_of_all_kinds_are_forgotten_in_reports_and_refused_lines(tmp_path, user):
    (tmp_path / "log").write_text("\n".join([SACCT_FIELDS, sacct_line(Job(user=user)), f"{user}|damaged"]) + "\n")
    with make_site(tmp_path / "site") as site:
        take(site, tmp_path / "log")
        assert forget(site, user) == 1
        assert user not in str(site.state.past_ingests())
        (tmp_path / "log2").write_text("\n".join([SACCT_FIELDS, sacct_line(Job(job_id=9)), f"owner={user}|damaged"]) + "\n")
        take(site, tmp_path / "log2")
        assert user not in str(site.quarantine.read().collect().rows())


def test_nobody_is_not_a_user(tmp_path):
    with make_site(tmp_path / "site") as site, pytest.raises(UsageError, match="No user was named"):
        forget(site, " ")


def test_a_site_without_its_key_says_so(tmp_path):
    make_site(tmp_path / "site").close()
    (tmp_path / "site" / "site.key").unlink()
    with pytest.raises(StoreError, match="key"):
        open_site(tmp_path / "site")
