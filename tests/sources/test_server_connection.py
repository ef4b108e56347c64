"""Connections to servers: secrets come from private files of one line, and are never part of a message."""

import ssl

import pytest

from stormpetrel.errors import SettingsError
from stormpetrel.sources.server_connection import read_secret, read_token, trusted_for


def written(folder, content, mode=0o600):
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_password_may_hold_spaces_and_letters_of_any_language(tmp_path):
    assert read_secret(written(tmp_path, "pass wörd\n".encode()), hint="Set it.") == "pass wörd"


@pytest.mark.parametrize("content", [b"", b"two words", "wörd".encode(), b"one\ntwo", b"a" * 70_000])
def test_what_is_not_one_token_is_refused_and_not_repeated(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(SettingsError, match="does not hold one token") as caught:
        read_token(path, hint="Set it.")
    assert not content or content.decode() not in str(caught.value)


def test_a_file_that_others_can_read_or_that_is_missing_says_what_to_do(tmp_path):
    with pytest.raises(SettingsError, match=r"can be read by others.*chmod 600"):
        read_token(written(tmp_path, b"token", 0o640), hint="Set it.")
    with pytest.raises(SettingsError, match=r"The token file .*missing cannot be read: .* Set it\."):
        read_token(tmp_path / "missing", hint="Set it.")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9090", "unix:///run/slurmrestd.sock"])
def test_an_address_without_encryption_needs_no_certificates_and_trusts_nobody(url, monkeypatch):
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: pytest.fail("certificates were read"))
    trusted = trusted_for(url)
    assert trusted.verify_mode == ssl.CERT_REQUIRED and not trusted.get_ca_certs()


def test_an_encrypted_address_is_checked_against_what_the_system_trusts():
    assert trusted_for("https://prometheus.example.org") is True
