import socket

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.faces.web.listening import ListenAddress


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8050", "127.0.0.1", 8050, True),
        ("[::1]:8050", "::1", 8050, True),
        ("localhost:0", "localhost", 0, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
        ("[::]:80", "::", 80, False),
        ("10.1.2.3:8050", "10.1.2.3", 8050, False),
        ("login1.example:8050", "login1.example", 8050, False),
        ("localhost.evil.example:1", "localhost.evil.example", 1, False),
    ],
)
def test_an_address_is_read_and_known_to_be_loopback_or_not(text, host, port, loopback):
    address = ListenAddress.parse(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, loopback)
    assert str(address) == text


@pytest.mark.parametrize("text", ["8050", "127.0.0.1", ":8050", "127.0.0.1:http", "127.0.0.1:70000", ""])
def test_what_is_no_address_is_one_sentence(text):
    with pytest.raises(UsageError, match="not an address to listen at"):
        ListenAddress.parse(text)


def test_a_port_that_is_taken_is_named_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 is taken.*--address 127.0.0.1:{port + 1}"):
            ListenAddress("127.0.0.1", port).bind()


def test_an_address_of_another_machine_is_one_sentence():
    with pytest.raises(UsageError, match="does not have the address"):
        ListenAddress("192.0.2.1", 8050).bind()


def test_a_host_that_nobody_knows_is_one_sentence():
    with pytest.raises(UsageError, match="not known"):
        ListenAddress("no-such-host.invalid", 8050).bind()
