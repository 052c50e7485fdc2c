"""Requests that follow a description, or nearly: each answer must be one that the description has."""

import json
from typing import Final

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from feedstore.app.http import DESCRIPTION
from feedstore.http import description

a_few: Final = settings(
    max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def schema_of(endpoints: description.Endpoints) -> BaseSchema:
    schema = schemathesis.openapi.from_dict(json.loads(description.document(endpoints, DESCRIPTION)))
    schema.config.generation.update(deterministic=True)
    return schema


def ask(case: schemathesis.Case, address: str) -> int:
    """The status of the answer, once it is checked."""
    answer = case.call(base_url=address)
    case.validate_response(
        answer,
        checks=[
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            negative_data_rejection,
        ],
    )
    return int(answer.status_code)
