"""What is new at a site is told to administrators: it names people."""

from stormpetrel.answers.history import trends
from stormpetrel.answers.history.trends import site_changes
from stormpetrel.answers.viewer import LOCAL, Viewer
from tests.builders import make_site


def test_only_administrators_are_told_who_is_new(tmp_path, monkeypatch):
    monkeypatch.setattr(trends, "change_texts", lambda _changes: ["The user eve is new."])
    with make_site(tmp_path / "site") as site:
        assert site_changes(site, LOCAL) == ["The user eve is new."]
        assert site_changes(site, Viewer("ada", is_admin=False)) == []


def test_a_site_without_jobs_has_nothing_new(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert site_changes(site, LOCAL) == []
