"""Names say which variables hold secrets; values that are ordinary words stay, and that is told."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest

from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.redaction.variables import is_credential, spellings

SECRET = "pa ss/w0rd+&<é>"


def redactor(*, named: tuple[str, ...] = (), **variables: str) -> Redactor:
    return Redactor.of_process(variables, named=named, exists=lambda path: path == "/etc/keys/one.pem")


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "PGPASSWORD"),
        *("MYSQL_PWD", "DB_PASSWD", "GOOGLE_CREDENTIALS", "BASIC_AUTH", "npm_config__authToken", "apiKey", "KEY2"),
        *("SESSION_COOKIE", "GH_PAT", "ssh-passphrase", "CLIENTSECRET", "secret"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_credential(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PWD", "OLDPWD", "PATH", "HOME", "AUTHOR", "GIT_AUTHOR_NAME", "KEYBOARD", "MONKEY", "PYTHONHASHSEED"),
        *("TOKENIZERS_PARALLELISM", "PATTERN", "COMPASS", "LANG", "KEYCLOAK_URL", "XAUTHORITY", "SECRET_NAME"),
        *("SSH_AUTH_SOCK", "API_KEY_FILE", "AUTH_TYPE", "tokenLimit"),
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_credential(name)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("short-7", "shorter than 8 characters"),
        ("abababab-ab", "fewer than 5 different characters"),
        ("disabled", "a plain word"),
        ("KERBEROS", "a plain word"),
        ("Anonymous", "a plain word"),
        ("1767225600", "a short number"),
        ("/etc/keys/one.pem", "a path of this machine"),
        ("https://login.example.com/oauth", "an address without a password"),
    ],
)
def test_ordinary_values_stay_and_are_told_by_name(value: str, reason: str) -> None:
    found = redactor(A_TOKEN=value)
    assert found.text(f"x {value} y") == f"x {value} y"
    assert found.ignored == {"A_TOKEN": reason}
    assert found.names == ()


@pytest.mark.parametrize(
    "value",
    [
        *("shorter8", "disabled-feature", "correcthorsebatterystaple", "20260101123456", "/not/a/path/of/this/machine"),
        *("https://user:password@example.com", "https://example.com/?token=1"),
    ],
)
def test_other_values_are_secrets(value: str) -> None:
    found = redactor(A_TOKEN=value)
    assert found.text(f"x {value} y") == "x [redacted: A_TOKEN] y"
    assert found.names == ("A_TOKEN",)
    assert found.ignored == {}


def test_an_empty_value_is_nothing() -> None:
    found = redactor(A_TOKEN="", B_TOKEN=" \n")
    assert (found.names, found.ignored) == ((), {})


def test_a_named_variable_counts_whatever_it_is_called_and_holds_but_for_its_length() -> None:
    found = redactor(named=("MY_ID", "NO_ID", "TINY"), MY_ID="disabled", OTHER="disabling", TINY="tiny")
    assert found.text("disabled disabling tiny") == "[redacted: MY_ID] disabling tiny"
    assert found.ignored == {"TINY": "shorter than 8 characters"}


@pytest.mark.parametrize(
    "spelled",
    [
        *(SECRET, quote(SECRET), quote(SECRET, safe=""), json.dumps(SECRET)[1:-1], repr(SECRET)[1:-1]),
        *("pa+ss%2Fw0rd%2B%26%3C%C3%A9%3E", "pa ss/w0rd+&amp;&lt;é&gt;"),
    ],
)
def test_a_value_is_found_as_it_is_spelled(spelled: str) -> None:
    assert redactor(A_KEY=SECRET).text(f"<{spelled}>") == "<[redacted: A_KEY]>"


@pytest.mark.parametrize("value", ["pa'ss-Wörd1", 'pa"ss-Wörd1', "pa'ss\"Wörd\\n", "pa'ss-Word1"])
@pytest.mark.parametrize("around", ["", "'", '"', "'\""])
def test_a_value_is_found_in_what_python_writes_of_a_text(value: str, around: str) -> None:
    text = f"{around} {value} {around}"
    for written in (repr(text), ascii(text), repr(text.encode())):
        shown = redactor(A_KEY=value).text(written)
        assert " [redacted: A_KEY] " in shown, (written, shown)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_in_base64_at_most_the_ends_are_left(before: str, encode: Callable[[bytes], bytes]) -> None:
    value = "s3cr3t>>value??with~~odd"
    shown = redactor(A_KEY=value).data(encode(f"{before}{value}: and more".encode())).decode()
    left, mark, right = shown.partition("[redacted: A_KEY]")
    assert mark
    assert len(left) == {0: 0, 1: 2, 2: 3, 3: 4}[len(before)]  # six bits a character: some are of both
    assert right == encode(f"{before}{value}: and more".encode()).decode()[-len(right) :]
    assert len(right) <= len(encode(b": and more")) + 2


def test_a_line_of_key_material_counts_by_itself() -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj" * 2
    found = redactor(SIGNING_KEY=f"-----BEGIN X-----\n{line}\nshort\n-----END X-----\n")
    assert found.text(f"  | {line}\n  | short") == "  | [redacted: SIGNING_KEY]\n  | short"


def test_the_first_name_tells_of_a_value_that_two_have_and_values_tell_before_forms() -> None:
    key = "sk-proj-" + "a1B2c3D4e5" * 4
    assert redactor(B_KEY=key, A_KEY=key).text(f"{key} {key}x") == "[redacted: A_KEY] [redacted: A_KEY]"
    assert redactor().text(key) == "[redacted: openai key]"


def test_what_is_learned_later_is_redacted_from_then_on() -> None:
    found = redactor()
    assert found.text("l4ter-value") == "l4ter-value"
    found.learn({"LATER_SECRET": "l4ter-value"})
    assert found.text("l4ter-value") == "[redacted: LATER_SECRET]"


def test_plain_values_lose_secrets_in_keys_and_texts_and_stay_themselves_without() -> None:
    found = redactor(A_KEY="s3cr3t-value")
    clean = {"a": [1, 2.5, None, True, ("x",)], "b": {"c": "s3cr3t"}}
    assert found.value(clean) is clean
    assert found.value({"s3cr3t-value": ["s3cr3t-value", 1, ("(s3cr3t-value)", None)]}) == {
        "[redacted: A_KEY]": ["[redacted: A_KEY]", 1, ("([redacted: A_KEY])", None)]
    }
    assert found.value("s3cr3t-value") == "[redacted: A_KEY]"


def test_text_that_is_not_utf_8_stays_to_the_byte() -> None:
    found = redactor(A_KEY="s3cr3t-value")
    assert found.text("\udcff s3cr3t-value \ud800") == "\udcff [redacted: A_KEY] \ud800"
    assert found.data(b"\xff\x00s3cr3t-value\xfe") == b"\xff\x00[redacted: A_KEY]\xfe"


def test_a_name_can_not_write_a_mark_of_its_own() -> None:
    found = redactor()
    found.learn({"A]\n_KEY": "s3cr3t-value"})
    assert found.text("s3cr3t-value") == "[redacted: A??_KEY]"


def test_a_line_of_a_value_counts_by_itself() -> None:
    found = set(spellings("first-line-Secret\nof two words, and long\nshort-1\n0000000000000000000\nb4stLine/of+4ll=="))
    lines = {line for line in found if b"\n" not in line and b"\\n" not in line and b"%0A" not in line.upper()}
    assert {b"first-line-Secret", b"b4stLine/of+4ll=="} <= lines
    assert not {b"of two words, and long", b"short-1", b"0000000000000000000"} & lines
