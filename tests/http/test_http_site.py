"""The pages for browsers: files that come with the program, and nothing from elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from http_servers import Client, client_of, in_process

from feedstore.following import endpoints
from feedstore.http import site


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Of a server with a page of its own."""
    directory = tmp_path / "site"
    (directory / "parts").mkdir(parents=True)
    (directory / "index.html").write_text("<!doctype html>")
    (directory / "parts" / "feed.js").write_text("1")
    (directory / ".hidden").write_text("x")
    monkeypatch.setattr(endpoints, "SITE", directory)
    with in_process(tmp_path / "home") as inside, client_of(inside.server.address) as client:
        yield client


def test_a_page_is_held_to_what_comes_with_it(browser: Client):
    page = browser.http.get("/")
    assert page.text == "<!doctype html>"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    script = browser.http.get("/parts/feed.js")
    assert "javascript" in script.headers["content-type"]


@pytest.mark.parametrize("held", ["{}", "W/{}", '"other", {}', '"other" ,W/{}', "*"])
def test_what_has_not_changed_is_not_sent_again(browser: Client, held: str):
    """Also behind a proxy that compresses: it makes the tag a weak one."""
    page = browser.http.get("/")
    again = browser.http.get("/", headers={"if-none-match": held.format(page.headers["etag"])})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("held", ['"other"', "W/", '""', 'W/"other", "another"'])
def test_what_has_changed_is_sent(browser: Client, held: str):
    assert browser.http.get("/", headers={"if-none-match": held}).status_code == 200


def test_nothing_else_of_the_disk_is_served(browser: Client):
    for path in ("/.hidden", "/index.html", "/parts", "/parts/", "/parts/../index.html", "/%2e%2e/home/cursor.key"):
        browser.get(path, 404)


def test_without_pages_there_is_nothing(tmp_path: Path):
    assert site.assets(tmp_path / "none") == {}
