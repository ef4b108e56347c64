from datetime import datetime

import pytest

from stormpetrel.config import Settings, parse_settings, settings_as_toml
from stormpetrel.errors import SettingsError
from stormpetrel.records.routes import shown_address
from stormpetrel.store.upkeep.backup import outside_settings
from tests.parts.told_incidents import route

HOOK = 'name = "chat"\nkind = "webhook"\nurl = "https://chat.example.org/hooks/s3cret"\n'
MAIL = 'name = "mail"\nkind = "email"\nhost = "mail.example.org"\nsender = "a@example.org"\nrecipients = ["b@example.org"]\n'


def parsed(*routes, head=""):
    return parse_settings(f"[notify]\n{head}" + "".join(f"[[notify.routes]]\n{text}" for text in routes))


def test_routes_are_written_to_site_toml_and_read_back_as_they_were():
    settings = parsed(
        HOOK + "names = false\nfamilies = ['jobs', 'traces']\n", MAIL, head='public_url = "https://petrel.example"\n'
    )
    assert parse_settings(settings_as_toml(settings)) == settings
    assert [one.name for one in settings.notify.routes] == ["chat", "mail"] and Settings().notify.routes == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "webhook"\nurl = "https://x"\n', r"notify\.routes\.0\.name"),
        (HOOK.replace("chat", "Chat", 1), "small letters"),
        (HOOK + 'quiet_hours = "22-7"\n', "22:00-07:00"),
        (HOOK + 'quiet_hours = "07:00-07:00"\n', "two times"),
        (HOOK + 'host = "mail"\n', "has no host"),
        (HOOK + 'url_file = "x"\n', "either url or url_file"),
        (HOOK + 'user = "kim"\n', "secret_file"),
        (HOOK + "families = ['job']\n", "families"),
        (HOOK + "per_hou = 3\n", "Did you mean 'per_hour'"),
        (HOOK.replace("webhook", "alertmanager") + 'template = "x"\n', "no template"),
        (HOOK.replace("https://", "https://kim:pw@"), "password in an address"),
        (HOOK.replace("https:", "file:"), "expected an address"),
        (MAIL.replace('host = "mail.example.org"', ""), "no host"),
        (MAIL.replace("recipients", "sender"), "TOML"),
        (MAIL.replace("b@example.org", "b@example.org\\r\\nBcc: c@example.org"), "plain addresses"),
        (MAIL.replace("a@example.org", "a b@example.org"), "plain addresses"),
        (MAIL + 'secret_file = "x"\n', "no user"),
        (MAIL + 'secret_file = "x"\nuser = "kim"\ntls = "none"\n', "unencrypted"),
    ],
)
def test_a_route_that_cannot_work_is_refused_with_the_key_that_is_wrong(text, words):
    with pytest.raises(SettingsError, match=words) as refused:
        parsed(text)
    assert "s3cret" not in str(refused.value)


def test_two_routes_of_one_name_and_a_link_with_a_query_are_refused():
    with pytest.raises(SettingsError, match="two routes are called 'chat'"):
        parsed(HOOK, HOOK)
    with pytest.raises(SettingsError, match=r"notify\.public_url"):
        parsed(head='public_url = "https://petrel.example/?a=b"\n')


def test_quiet_hours_may_go_over_midnight_and_end_with_their_last_minute():
    night, noon = route(quiet_hours="22:00-07:00"), route(quiet_hours="12:00-13:00")
    hours = {
        time: datetime.fromisoformat(f"2026-01-31T{time}") for time in ("21:59", "22:00", "06:59", "07:00", "12:30", "13:00")
    }
    assert [time for time, moment in hours.items() if night.is_quiet(moment)] == ["22:00", "06:59"]
    assert [time for time, moment in hours.items() if noon.is_quiet(moment)] == ["12:30"]
    assert not route().is_quiet(hours["22:00"])


def test_of_an_address_only_its_host_is_shown():
    assert shown_address("https://hooks.example.org:8443/services/T0/s3cret?x=1") == "https://hooks.example.org:8443"


def test_whoever_restores_a_site_sees_where_its_messages_go():
    entries = {entry.name: (entry.kind, entry.value) for entry in outside_settings(parsed(HOOK + 'secret_file = "key"\n', MAIL))}
    assert entries["notify.routes.chat.url"][0] == "server" and entries["notify.routes.chat.secret_file"] == ("file", "key")
    assert entries["notify.routes.mail.recipients"] == ("server", "b@example.org")
