"""The OpenAPI document, made from the table of endpoints and the types of what travels."""

import inspect
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from feedstore.http import problems
from feedstore.http.endpoint import Endpoint
from feedstore.http.problems import Problem
from feedstore.http.wire import Health, Id, Token

VERSION: Final = "1"
SCOPES_PATH: Final = "/v1/token"
_JSON: Final = "application/json"
_REF: Final = "#/components/schemas/{name}"

_PLAIN: Final = (
    ("healthz", "/healthz", "Liveness: 200 if the process answers"),
    ("readyz", "/readyz", "Readiness: 200 if a cluster answers and the server is not shutting down"),
)


Endpoints = Sequence[Endpoint[Any, Any, Any]]


def document(endpoints: Endpoints, description: str) -> bytes:
    """The OpenAPI document as JSON. description: what the whole API is for, in a sentence."""
    return msgspec.json.format(msgspec.json.encode(_document(endpoints, description)), indent=1)


def _document(endpoints: Endpoints, description: str) -> dict[str, Any]:
    types = _types(endpoints)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    for each in components.values():
        if "description" in each:
            each["description"] = inspect.cleandoc(each["description"])
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of, components)
    for name, path, summary in _PLAIN:
        answer = _content(schema_of[Health], Health())
        paths[path] = {"get": _plain(name, summary, {"200": {"description": "It is", "content": {_JSON: answer}}})}
    scopes = {"description": "Done", "content": {_JSON: _content(schema_of[Token], Token(["read", "write"]))}}
    token = _plain("token", "The scopes that this request has", {"200": scopes})
    paths[SCOPES_PATH] = {"get": token | {"security": _SECURITY}}
    text = {"description": "Prometheus text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    paths["/metrics"] = {"get": _plain("metrics", "The metrics of this server", {"200": text}) | _security("read")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "feedstore",
            "version": VERSION,
            "description": description,
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`feedctl token new` creates a token. If the server has no tokens file, it needs no"
                    " token, and listens on the loopback of its machine only.",
                }
            },
        },
    }


def _types(endpoints: Endpoints) -> list[Any]:
    found: dict[Any, None] = {Problem: None, Health: None, Token: None, Id: None}
    for endpoint in endpoints:
        found |= dict.fromkeys((endpoint.answer, endpoint.query))
        if endpoint.body is not None:
            found[endpoint.body] = None
    return list(found)


def _operation(
    endpoint: Endpoint[Any, Any, Any], schema_of: dict[Any, Any], components: dict[str, Any]
) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema_of[Id], "example": example}
        for name, example in endpoint.examples.items()
    ]
    parameters += [
        {"name": name, "in": "path", "required": True, "schema": _WORD, "example": example}
        for name, example in endpoint.words.items()
    ]
    query = components[endpoint.query.__name__]["properties"]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]
    if endpoint.scope == "write" and endpoint.takes_key:
        parameters.append(_KEY)
    answer = _content(schema_of[endpoint.answer], endpoint.answer_example)
    operation = _plain(endpoint.name, endpoint.summary, {"200": {"description": "Done", "content": {_JSON: answer}}})
    operation |= _security(endpoint.scope)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {"schema": schema_of[endpoint.body], "example": endpoint.body_example}
        operation["requestBody"] = {"required": True, "content": {_JSON: content}}
    return operation


def _plain(name: str, summary: str, answers: dict[str, Any]) -> dict[str, Any]:
    refusal = {
        "description": "The request is refused, or it failed: `type` says why",
        "content": {problems.MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
    return {"operationId": name, "summary": summary, "responses": {**answers, "default": refusal}}


def _security(scope: str) -> dict[str, Any]:
    return {"security": _SECURITY, "x-scope": scope}


def _content(schema: Any, example: msgspec.Struct) -> dict[str, Any]:
    return {"schema": schema, "example": msgspec.to_builtins(example)}


_WORD: Final = {"type": "string", "minLength": 1}
_SECURITY: Final[list[dict[str, list[str]]]] = [{"token": []}, {}]
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A text of your choice that is unique to this action. If you repeat the request with the same key,"
    " it has no second effect, and you get the first answer",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
}
