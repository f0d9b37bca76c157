"""Which server a URL means, and that no message repeats a password."""

import pytest

from pacehound.errors import InvalidInput
from storage.address import server_address


@pytest.mark.parametrize(
    ("url", "user", "password", "expected"),
    [
        ("http://h", "", "", ("http", "h", 8123, "pacehound", "default", "")),
        ("https://h", "u", "p", ("https", "h", 8443, "pacehound", "u", "p")),
        (" http://u:p@h:1/db/ ", "v", "q", ("http", "h", 1, "db", "u", "p")),
        ("http://u@h", "v", "q", ("http", "h", 8123, "pacehound", "u", "q")),
        ("http://u%40x:a%2Fb@h", "", "", ("http", "h", 8123, "pacehound", "u@x", "a/b")),
        ("http://[::1]:9", "", "", ("http", "::1", 9, "pacehound", "default", "")),
    ],
)
def test_what_the_url_does_not_say_comes_from_the_settings(url, user, password, expected):
    a = server_address(url, user, password)
    assert (a.scheme, a.host, a.port, a.database, a.user, a.password) == expected


@pytest.mark.parametrize(
    "url",
    ["", "h", "h:8123", "tcp://u:secret@h:9000", "http://", "http://u:secret@h:x", "http://h:70000", "http://h/a-b",
     "http://u:secret@h/a/b", "http://h/db?user=secret", "http://h/`"],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_password(url):
    with pytest.raises(InvalidInput, match=r"store\.url") as refused:
        server_address(url)
    assert "secret" not in str(refused.value)


def test_an_address_can_be_shown_and_keeps_its_password_to_itself():
    address = server_address("http://u:secret@[::1]:9")
    assert address.place == "[::1]:9"
    assert "secret" not in repr(address)
