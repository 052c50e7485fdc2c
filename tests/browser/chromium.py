"""A headless Chromium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver


@contextmanager
def chromium(profile: Path, *arguments: str) -> Iterator[WebDriver]:
    """profile: a directory for what it keeps."""
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in paths.items() if path is None]
    assert not missing, f"not installed: {', '.join(missing)}; `make test-browser` installs them"
    options = webdriver.ChromeOptions()
    options.binary_location = str(paths["chromium"])
    for argument in (
        "--headless=new",
        "--no-sandbox",  # there is none for root
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={profile}",
        *arguments,
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, Service(str(paths["chromedriver"])))
    try:
        driver.set_page_load_timeout(120)
        driver.set_script_timeout(60)
        yield driver
    finally:
        driver.quit()
