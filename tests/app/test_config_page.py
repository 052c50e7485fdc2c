"""docs/configuration.md is made of the comments on keys: they say what the code has as defaults, and leave out none."""

import tomllib

import msgspec
import pytest

from feedstore import settings
from feedstore.app import config
from workers.app import config_page


def defaults(text: str) -> dict[tuple[str, str], object]:
    """The values in a text in the form of `feed.toml`, those that are commented out as well."""
    return {key: tomllib.loads(f"_ = {value}")["_"] for key, value in config_page.comments(text).values.items()}


def test_the_values_that_are_shown_as_defaults_are_those_of_the_code() -> None:
    shown = defaults(config.REST) | defaults(config.DEFAULT)
    keys = {(name, key.encode_name): key for name, some in config_page.sections() for key in some}
    assert set(shown) == set(keys)
    for at, key in keys.items():
        value = msgspec.convert(shown[at], key.type, dec_hook=settings.decoded)
        assert key.required or key.default in (value, None), at


def test_a_key_without_a_comment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "REST", config.REST.replace("# how many connections a server has at most", ""))
    with pytest.raises(ValueError, match=r"\[http\] connections: expected a comment"):
        config_page.page()


def test_a_row_says_what_a_key_takes_and_which_variable_overrides_it() -> None:
    assert (
        '| `gather` | a duration up to 100ms | `"20ms"` | yes | `FEED_WORKER_GATHER` | if few messages come, a writer'
        " begins a lot this often; it delays pages by up to that |\n"
    ) in config_page.page()
    assert '| `stale_max` | a duration up to 90d | `"10m"` | no |  |' in config_page.page()
