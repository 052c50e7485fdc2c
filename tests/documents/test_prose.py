"""The pages are written as `make lint` holds them, and what it holds them to finds what it must."""

from tests.documents import prose


def test_pages_and_edited_code_are_as_the_house_writes() -> None:
    assert list(prose.faults()) == []


def test_each_pattern_of_edited_code_is_a_file() -> None:
    assert [pattern for pattern in prose.CODE if not list(prose.files((pattern,)))] == []


def test_what_is_too_long() -> None:
    long = "word " * 30
    assert prose.too_long(f"{long}\n| {long} |\n```sh\n{long}\n```\n- {long}\n") == [1, 6]


def test_which_words_are_found_and_where_they_are_not_read() -> None:
    page = "It Stands here.\n`stands` and [a page](retries-beside.md)\n```\nnobody\n```\nWork goes on besides.\n"
    assert prose.words(page) == [(1, "Stands"), (6, "goes on")]
    assert prose.words_in_code('"""It stands."""\n# nobody\nbesides = 1\n') == [(1, "stands"), (2, "nobody")]
