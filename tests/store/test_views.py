import pytest

from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.store import views as module
from stormpetrel.store.state import open_state
from stormpetrel.store.views import SavedView, ViewStore, checked_link


@pytest.fixture
def views(tmp_path):
    state = open_state(tmp_path, lock_folder=tmp_path)
    yield ViewStore(state)
    state.close()


def test_each_user_has_the_own_views(views):
    views.save("kim", " mine ", "/jobs?user=kim")
    views.save("kim", "all", "/trends")
    views.save("lee", "mine", "/waste")
    assert views.list("kim") == (SavedView("all", "/trends"), SavedView("mine", "/jobs?user=kim"))
    with pytest.raises(NotThereError):
        views.delete("lee", "all")
    views.delete("kim", "all")
    assert [view.name for view in views.list("kim")] == ["mine"]


def test_a_view_of_the_same_name_is_replaced(views):
    views.save("kim", "mine", "/jobs")
    views.save("kim", "mine", "/waste")
    assert views.list("kim") == (SavedView("mine", "/waste"),)


@pytest.mark.parametrize("link", ["/", "/jobs", "/jobs?search=50%25&user=kim#top", "/jobs/7-1-0-main", "/jobs?next=//x"])
def test_a_path_of_ours_is_a_link(link):
    assert checked_link(link) == link


@pytest.mark.parametrize(
    "link",
    [
        "", "jobs", "//evil.example", "/\\evil.example", "\\\\evil", "https://evil.example", "javascript:alert(1)",
        "data:text/html,x",
        "/\n/evil.example", "/\t/evil.example", "/jobs\x00", "/jobs\u2028", " /jobs", "/jobs x", "/" + "x" * 2000,
    ],
)  # fmt: skip
def test_a_saved_view_leads_to_our_own_pages_only(views, link):
    with pytest.raises(UsageError, match="not a link to one of our pages"):
        views.save("kim", "mine", link)
    assert views.list("kim") == ()


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 129])
def test_a_name_that_cannot_be_shown_is_refused(views, name):
    with pytest.raises(UsageError, match="cannot be the name"):
        views.save("kim", name, "/jobs")


def test_nobody_fills_the_disk_with_views(views, monkeypatch):
    monkeypatch.setattr(module, "_MOST_PER_USER", 2)
    for name in "ab":
        views.save("kim", name, "/jobs")
    with pytest.raises(UsageError, match="the most that are kept"):
        views.save("kim", "c", "/jobs")
    views.save("kim", "b", "/waste")
    assert len(views.list("kim")) == 2
