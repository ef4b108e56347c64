"""Mail through a real SMTP server: subject, ids, digest, TLS, and what a server may answer."""

import ssl
import subprocess

import pytest
from aiosmtpd.smtp import AuthResult

from stormpetrel.errors import SettingsError
from stormpetrel.records.incidents import MessageKind
from stormpetrel.watch.notify.receivers.email import EmailReceiver
from stormpetrel.watch.notify.receivers.receiver import DeliveryError
from tests.parts import free_ports, require
from tests.parts.inbox import Inbox
from tests.parts.told_incidents import route
from tests.watch.notify.receivers.made import delivery, notice


@pytest.fixture
def inbox():
    with Inbox() as inbox:
        yield inbox


def mail_route(port, **more):
    people = ["ops@example.org", "night@example.org"]
    return route(
        "mail",
        "email",
        **{"host": "127.0.0.1", "port": port, "tls": "none", "sender": "petrel@example.org", "recipients": people} | more,
    )


def sent(inbox, *notices, **more):
    EmailReceiver(mail_route(inbox.port)).send(delivery(*notices, **more))
    return inbox.mails[-1]


def test_a_mail_has_the_one_line_as_its_subject_the_figures_and_the_link(inbox):
    mail = sent(inbox)
    assert mail["Subject"] == "n017 fails every job since 14:00: 46 of 46, others 2 %; suspected: node"
    assert mail["Message-ID"] == "<incident-53-0-firing-ops-0a1b2c3d@example.org>" and mail["Auto-Submitted"] == "auto-generated"
    text = mail.get_content()
    assert "lost 46" in text and "https://petrel.example/alarms?incident=53" in text and "cluster c1" in text
    assert inbox.recipients == [["ops@example.org", "night@example.org"]]


def test_the_end_of_an_incident_refers_to_the_mail_that_told_of_it(inbox):
    firing, resolved = sent(inbox), sent(inbox, notice(kind=MessageKind.RESOLVED))
    assert resolved["References"] == firing["Message-ID"] != resolved["Message-ID"]
    assert resolved["Subject"].startswith("resolved: n017")


def test_a_repeat_has_the_same_id_and_says_that_it_is_one(inbox):
    first, again = sent(inbox), sent(inbox, is_repeat=True)
    assert first["Message-ID"] == again["Message-ID"] and again["X-Stormpetrel-Repeat"] == "true"
    assert again["Subject"] == f"(repeat) {first['Subject']}" and "may have reached you before" in again.get_content()


def test_a_digest_is_one_mail_about_all(inbox):
    mail = sent(inbox, *(notice(number, title=f"n{number} is odd") for number in range(30)))
    assert mail["Subject"] == "30 incidents at my cluster: 30 firing, 0 resolved"
    assert all(f"n{number} is odd" in mail.get_content() for number in range(30)) and len(inbox.mails) == 1


def test_names_that_are_not_ascii_arrive_as_they_are(inbox):
    mail = sent(inbox, notice(title="Knoten-ü 🦆 fällt aus " + "ж" * 300))
    assert mail["Subject"].startswith("Knoten-ü 🦆 fällt aus жжж") and "🦆" in mail.get_content()


def test_a_title_with_line_ends_cannot_add_a_header_or_a_recipient(inbox):
    with pytest.raises(ValueError, match="linefeed"):  # notices are clean; were one not, the mail could not be made
        sent(inbox, notice(title="n1\r\nBcc: all@example.org"))
    assert inbox.mails == []


def test_a_long_domain_does_not_break_the_id(inbox):
    domain = ".".join(["a" * 60] * 3)
    EmailReceiver(mail_route(inbox.port, sender=f"petrel@{domain}")).send(delivery())
    assert inbox.mails[0]["Message-ID"].replace("\n", "").strip() == f"<incident-53-0-firing-ops-0a1b2c3d@{domain}>"


@pytest.mark.parametrize(("refusal", "is_final"), [("451 try later", False), ("554 no", True), ("552 too big", True)])
def test_what_a_server_refuses_for_now_is_tried_again_and_what_it_refuses_is_given_up(inbox, refusal, is_final):
    inbox.refusal = refusal
    with pytest.raises(DeliveryError, match=refusal) as error:
        EmailReceiver(mail_route(inbox.port)).send(delivery())
    assert error.value.is_final == is_final and not error.value.may_have_arrived


def test_a_server_that_is_down_is_tried_again():
    (port,) = free_ports(1)
    with pytest.raises(DeliveryError, match="cannot be reached") as error:
        EmailReceiver(mail_route(port)).send(delivery())
    assert not error.value.is_final and not error.value.may_have_arrived


def test_without_starttls_nothing_is_sent_where_it_is_asked_for(inbox):
    with pytest.raises(DeliveryError, match="did not let us in") as error:
        EmailReceiver(mail_route(inbox.port, tls="starttls")).send(delivery())
    assert inbox.mails == [] and not error.value.is_final


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    require("openssl", install="openssl")
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run(["openssl", "req", "-x509", *kind, *subject, *files], check=True, capture_output=True)
    return folder


@pytest.fixture
def tls_inbox(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")

    def check(_server, _session, _envelope, _mechanism, data):
        return AuthResult(success=(data.login, data.password) == (b"petrel", b"pass word"), handled=False)

    with Inbox(tls_context=context, require_starttls=True, auth_required=True, authenticator=check) as inbox:
        yield inbox


def secret(folder, text, mode=0o600):
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_password_goes_over_an_encrypted_connection_to_a_server_that_is_known(tls_inbox, certificate, tmp_path):
    how = {"tls": "starttls", "user": "petrel", "secret_file": secret(tmp_path, "pass word\n")}
    with pytest.raises(DeliveryError, match="did not let us in"):  # its certificate is nobody's
        EmailReceiver(mail_route(tls_inbox.port, **how)).send(delivery())
    EmailReceiver(mail_route(tls_inbox.port, ca_file=str(certificate / "cert.pem"), **how)).send(delivery())
    assert len(tls_inbox.mails) == 1


def test_a_wrong_password_loses_nothing_and_is_never_shown(tls_inbox, certificate, tmp_path):
    how = {
        "tls": "starttls",
        "user": "petrel",
        "secret_file": secret(tmp_path, "s3cret"),
        "ca_file": str(certificate / "cert.pem"),
    }
    with pytest.raises(DeliveryError, match="535") as error:
        EmailReceiver(mail_route(tls_inbox.port, **how)).send(delivery())
    assert not error.value.is_final and "s3cret" not in str(error.value)


def test_a_password_file_that_others_can_read_is_refused_at_the_start(tmp_path):
    path = secret(tmp_path, "s3cret", mode=0o640)
    with pytest.raises(SettingsError, match="can be read by others"):
        EmailReceiver(mail_route(25, user="petrel", secret_file=path))


def test_an_authority_that_cannot_be_read_is_refused_at_the_start(tmp_path):
    with pytest.raises(SettingsError, match="ca_file"):
        EmailReceiver(mail_route(25, ca_file=str(tmp_path / "none.pem")))
