"""The description holds: whatever follows it, or nearly, gets an answer that the description has."""

import json
from typing import Any

import httpx
import pytest
import schemathesis
from described import a_few, ask, schema_of
from http_servers import Client, check_problem
from schemathesis.schemas import BaseSchema

from feedstore.app.http import DESCRIPTION, ENDPOINTS
from feedstore.catalog import endpoints as of_catalogs
from feedstore.http import description

# Made when the test runs: each process that collects tests would take a second for it.
_schema = schemathesis.pytest.from_fixture("described")


@pytest.fixture
def described() -> BaseSchema:
    return schema_of(ENDPOINTS)


@_schema.parametrize()
@a_few
def test_every_answer_is_one_that_is_described(case: schemathesis.Case, address: str):
    assert ask(case, address) < 500


def test_the_description_is_served_and_complete(client: Client):
    served = client.get("/openapi.json")
    assert served["openapi"].startswith("3.1")
    described = {(path, method) for path, methods in served["paths"].items() for method in methods}
    assert described >= {(each.path, each.method.lower()) for each in ENDPOINTS}
    for path, method in described:
        operation = served["paths"][path][method]
        assert operation["responses"]["default"]["content"].keys() == {"application/problem+json"}
        for content in operation["responses"]["200"]["content"].values():
            assert path == "/metrics" or content["example"] is not None


def test_the_examples_work(client: Client):
    for endpoint in ENDPOINTS:
        path = endpoint.path.format(**endpoint.examples)
        body = {} if endpoint.body_example is None else {"json": endpoint.body_example}
        answer: httpx.Response = client.http.request(endpoint.method, path, **body)
        if answer.status_code not in {200, 403, 404, 409}:
            raise AssertionError(answer.text)
        if answer.status_code != 200:
            check_problem(answer)


def test_generators_take_the_names_of_its_types():
    """Code is made from them: each is one word, and a home has no other ones if it gets catalogs."""
    names = _types_of([*ENDPOINTS, *of_catalogs.ENDPOINTS])
    assert [name for name in names if not name.isidentifier()] == []
    assert set(_types_of(ENDPOINTS)) <= set(names)


def test_what_it_says_of_a_type_is_text():
    """Markdown: lines that are indented further than the first, as in a docstring, would be shown as code."""
    types = _types_of([*ENDPOINTS, *of_catalogs.ENDPOINTS])
    said = [each["description"] for each in types.values() if "description" in each]
    assert said
    assert [text for text in said if "\n " in text] == []


def _types_of(endpoints: description.Endpoints) -> dict[str, Any]:
    return dict(json.loads(description.document(endpoints, DESCRIPTION))["components"]["schemas"])
