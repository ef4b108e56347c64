import json

import pytest

from tests.builders import make_site
from tests.parts.command_line import run_here
from tests.parts.post_box import PostBox


@pytest.fixture
def folder(tmp_path):
    with PostBox() as box:
        routes = [
            {"name": "ops", "kind": "webhook", "url": box.url},
            {"name": "away", "kind": "webhook", "url": "http://127.0.0.1:9/s3cret"},
        ]
        make_site(tmp_path / "site", notify={"routes": routes}).close()
        yield tmp_path / "site"


def test_a_test_says_per_route_what_happened_and_fails_if_one_does(folder):
    done = run_here(folder, "notify", "test")
    assert done.returncode == 1 and "s3cret" not in done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "ops (webhook): taken", "away (webhook): not taken: http://127.0.0.1:9 cannot be reached (ConnectError)",
    ]  # fmt: skip
    assert run_here(folder, "notify", "test", "--route", "ops").returncode == 0


def test_programs_get_the_receipt_and_the_list(folder):
    receipt = json.loads(run_here(folder, "notify", "test", "--json").stdout)
    assert receipt["failed"] == 1 and [trial["delivered"] for trial in receipt["trials"]] == [True, False]
    answer = json.loads(run_here(folder, "notify", "list", "--json").stdout)
    assert answer.keys() == {"deliveries", "waiting", "given_up", "routes"} and len(answer["deliveries"]) == 2


def test_people_get_a_line_per_message_or_what_to_do(folder, tmp_path):
    assert "Try them: stormpetrel notify test" in run_here(folder, "notify", "list").stdout
    run_here(folder, "notify", "test")
    lines = run_here(folder, "notify", "list").stdout.splitlines()
    assert any("ops" in line and "test" in line and "delivered" in line for line in lines)
    assert any("away" in line and "given up: http://127.0.0.1:9 cannot be reached" in line for line in lines)
    make_site(tmp_path / "bare").close()
    assert "no [[notify.routes]]" in run_here(tmp_path / "bare", "notify", "list").stdout


def test_rules_for_prometheus_are_printed_as_they_are_shipped(folder):
    done = run_here(folder, "notify", "rules")
    assert done.returncode == 0 and "absent(stormpetrel_watch_heartbeat_timestamp_seconds)" in done.stdout
