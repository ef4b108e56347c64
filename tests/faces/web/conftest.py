import pytest

from tests.faces.web.sample_site import door_site


@pytest.fixture
def make(tmp_path):
    """Sites with settings of their own, closed at the end: make(login="token", store={…})."""
    opened = []

    def site(store=None, **serve):
        opened.append(door_site(tmp_path / f"site{len(opened)}", serve=serve, store=store or {}))
        return opened[-1]

    yield site
    for one in opened:
        one.close()
