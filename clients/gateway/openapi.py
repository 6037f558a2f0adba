"""The OpenAPI document, made from the declared operations and their models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from perdure.clients.gateway.inputs import Nothing
from perdure.clients.gateway.operations import EVENTS, Operation
from perdure.clients.gateway.problems import MEDIA_TYPE, Problem

Json = dict[str, Any]

_SCHEMAS = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
_TITLE = "Perdure"
_ABOUT = (
    "Turns of agents: each runs to its end, whatever becomes of a connection. Errors are problem"
    " details (RFC 9457) with a stable `code`. Ids may contain slashes, which need no encoding."
    " With the extra `perdure[mcp]`, `/mcp` serves the Model Context Protocol, which describes"
    " itself."
)
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The id, if the body has none. A request with the same key is the same one.",
    "schema": {"type": "string"},
}
_LAST_EVENT: Json = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The id of the last known event; the stream goes on after it.",
    "schema": {"type": "string"},
}


def document(operations: Iterable[Operation]) -> Json:
    """Return the OpenAPI document of these operations."""
    operations = tuple(operations)
    models = list(dict.fromkeys(_models(operations)))
    refs, schemas = models_json_schema(models, ref_template=_SCHEMAS)
    defined: Json = schemas["$defs"]
    queries = {
        operation.query: defined.pop(_name(refs, operation.query))
        for operation in _asked(operations)
    }
    paths: dict[str, Json] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, refs, queries)
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": version("perdure"), "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": defined,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _models(
    operations: Iterable[Operation],
) -> Iterator[tuple[type[BaseModel], JsonSchemaMode]]:
    yield Problem, "serialization"
    for operation in _asked(operations):
        yield operation.query, "validation"
    for operation in operations:
        if operation.body is not Nothing:
            yield operation.body, "validation"
        for model in operation.answers.values():
            if isinstance(model, type):
                yield model, "serialization"


def _asked(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield the operations that have a query, one for each kind of query."""
    yield from {
        operation.query: operation for operation in operations if operation.query is not Nothing
    }.values()


def _name(refs: Mapping[Any, Json], model: type[BaseModel]) -> str:
    """Return the name of a model in the document."""
    return str(refs[model, "validation"]["$ref"]).rpartition("/")[2]


def _operation(
    operation: Operation, refs: Mapping[Any, Json], queries: Mapping[type[BaseModel], Json]
) -> Json:
    summary, _, description = operation.text.partition("\n\n")
    needs = f"It needs the permission `{operation.may}`."
    described: Json = {
        "operationId": operation.name,
        "summary": " ".join(summary.split()),
        "description": f"{' '.join(description.split())} {needs}".strip(),
        "tags": [_tag(operation.path)],
        "parameters": [*_parameters(operation, queries.get(operation.query, {}))],
        "responses": {**dict(_answers(operation, refs)), "default": _problem(refs)},
    }
    if operation.body is not Nothing:
        content = {"application/json": {"schema": refs[operation.body, "validation"]}}
        is_required = any(field.is_required() for field in operation.body.model_fields.values())
        described["requestBody"] = {"content": content, "required": is_required}
    return described


def _tag(path: str) -> str:
    """Return the first part of a path after the version."""
    return next(part for part in path.split("/") if part not in ("", "v1"))


def _parameters(operation: Operation, query: Json) -> Iterator[Json]:
    for name in _PARAMETER.findall(operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for name, schema in query.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}
    if operation.takes_key:
        yield _KEY
    if EVENTS in operation.answers.values():
        yield _LAST_EVENT


def _answers(operation: Operation, refs: Mapping[Any, Json]) -> Iterator[tuple[str, Json]]:
    for status, model in operation.answers.items():
        response: Json = {"description": HTTPStatus(status).phrase}
        if model == EVENTS:
            response["content"] = {EVENTS: {"schema": {"type": "string"}}}
        elif model is not None:
            response["content"] = {"application/json": {"schema": refs[model, "serialization"]}}
        yield str(status), response


def _problem(refs: Mapping[Any, Json]) -> Json:
    schema = refs[Problem, "serialization"]
    return {"description": "An error", "content": {MEDIA_TYPE: {"schema": schema}}}
