"""A token callback that is given by its name, and what it must not do to the query."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_groupsource import oauth_callback
from spark_groupsource.brokers import shared_token
from spark_groupsource.brokers.oauth_callback import function_named, token_callback
from spark_groupsource.brokers.shared_token import SharedToken
from spark_groupsource.errors import AuthenticationFailed, OptionError

SECRET = "tweedledum"  # noqa: S105

given: Callable[[str | None], object] = print
"""What `callback` does; each test says."""


@oauth_callback
def callback(config: str | None) -> object:
    return given(config)


class Tokens:
    @staticmethod
    @oauth_callback
    def one(config: str | None) -> tuple[str, float]:
        return f"{SECRET}-{config}", time.time() + 60

    @oauth_callback
    def of_an_object(self, config: str | None) -> object:
        return given(config)

    @property
    def token(self) -> object:
        return given(None)


def unmarked(config: str | None) -> object:
    return given(config)


@functools.wraps(callback)
def wrapper(config: str | None) -> object:
    return given(config)


partial = functools.partial(callback)
bound = Tokens().of_an_object
tokens = Tokens()


def __getattr__(name: str) -> object:
    if name == "made_on_demand":
        return given(name)
    raise AttributeError(name)


@pytest.fixture
def giving(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], SharedToken]:
    def make(token: object) -> SharedToken:
        monkeypatch.setattr(shared_token, "FIRST_TOKEN_S", 0.0)
        monkeypatch.setitem(globals(), "given", token if callable(token) else lambda _config: token)
        return token_callback(f"{__name__}:callback", None)

    return make


Giving = Callable[[object], SharedToken]


def test_the_function_gets_the_config_and_its_token_is_given() -> None:
    tokens = token_callback(f"{__name__}:Tokens.one", "region=eu")
    given_token = tokens("region=eu")
    assert given_token.value == f"{SECRET}-region=eu"
    assert given_token.expiry > time.time()
    assert SECRET not in f"{given_token!r} {given_token}"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("unmarked", "this function does not have the decorator"),
        ("wrapper", "this function does not have the decorator"),
        ("partial", "this is a partial"),
        ("bound", "this is a method"),
        ("tokens.of_an_object", "of_an_object belongs to a Tokens"),
        ("Tokens.token", "this is a property"),
        ("Tokens", "this is a type"),
        ("made_on_demand", "cannot be imported"),
        ("subprocess.getoutput", "this function does not have the decorator"),
    ],
)
def test_what_its_author_has_not_marked_is_not_called(monkeypatch: pytest.MonkeyPatch, path: str, message: str) -> None:
    monkeypatch.setitem(globals(), "given", lambda _config: pytest.fail("it was called"))
    with pytest.raises(OptionError, match=message) as caught:
        token_callback(f"{__name__}:{path}", None)
    if "cannot be imported" not in str(caught.value):
        assert "@oauth_callback" in str(caught.value)
        assert "from spark_groupsource import oauth_callback" in str(caught.value)


def test_a_command_in_the_options_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"'os:system': Python's own modules .*@oauth_callback"):
        token_callback("os:system", f"touch {tmp_path}/ran")
    assert not list(tmp_path.iterdir())


def test_a_module_of_python_itself_is_not_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    with pytest.raises(OptionError):
        function_named("this:s")
    assert "this" not in sys.modules


@pytest.mark.parametrize("other", [functools.partial(print), print, Tokens, staticmethod(unmarked), bound])
def test_only_a_function_can_be_marked(other: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="only for functions"):
        oauth_callback(other)


def test_the_decorator_needs_neither_pyspark_nor_kafka() -> None:
    code = """
import sys
from spark_groupsource import oauth_callback
print(sorted({"pyspark", "confluent_kafka"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit"])
def test_a_module_that_raises_is_named_without_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    (tmp_path / "broken_tokens.py").write_text(f"raise {error}({SECRET!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OptionError, match=rf"broken_tokens.*raised {error}") as caught:
        function_named("broken_tokens:token")
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (SECRET, "must return a tuple"),
        ((SECRET, None), "must return a tuple"),
        ((SECRET,), "must return a tuple"),
        (None, "must return a tuple"),
        ([SECRET, 4e9], "must return a tuple"),
        ((SECRET, 1_000_000_000), "already expired"),
        ((SECRET, float("nan")), "not a time in seconds"),
        ((SECRET, float("inf")), "not a time in seconds"),
        ((SECRET, 10**400), "not a time in seconds"),
        ((SECRET, 1_900_000_000_000), "divide milliseconds by 1000"),
        (("", 4e9), "returned a token that is empty"),
        ((SECRET + "\0", 4e9), "characters"),
        ((SECRET + "ü", 4e9), "characters"),
        ((SECRET, 4e9, None), "principal"),
        ((SECRET, 4e9, "a\0"), "principal"),
        ((SECRET, 4e9, "\ud800"), "principal"),
        ((SECRET, 4e9, "", None), "extensions, must be a dict"),
        ((SECRET, 4e9, "", {"auth": SECRET}), "'auth'"),
        ((SECRET, 4e9, "", {"trace-id": SECRET}), "names of the token's extensions"),
        ((SECRET, 4e9, "", {"trace": 1}), "values of the token's extensions"),
        ((SECRET, 4e9, "", {}, SECRET), "must return a tuple"),
    ],
)
def test_what_is_no_token_is_an_error_without_the_token(giving: Giving, token: object, message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message) as caught:
        giving(token)
    assert "kafka.oauth_cb" in str(caught.value)
    assert SECRET not in f"{caught.value!r}"


@pytest.mark.parametrize("more", [(), ("principal",), ("principal", {"extension": "x"})])
def test_a_principal_and_extensions_may_come_with_it(giving: Giving, more: tuple[object, ...]) -> None:
    expiry = time.time() + 60
    given_token = giving((SECRET, expiry, *more))(None)
    assert given_token == (SECRET, pytest.approx(expiry, abs=1), *more, *("", {})[len(more) :])


def test_a_function_that_ends_its_process_is_an_error_without_what_it_said(giving: Giving) -> None:
    with pytest.raises(AuthenticationFailed, match="raised SystemExit") as caught:
        giving(lambda _config: sys.exit(SECRET))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
