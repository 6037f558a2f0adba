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
    wanted = list(dict.fromkeys(_models(operations)))
    refs, schemas = models_json_schema(wanted, ref_template=_SCHEMAS)
    defined: Json = schemas["$defs"]
    queries = {one.query: defined.pop(_name(refs, one.query)) for one in _asked(operations)}
    paths: dict[str, Json] = {}
    for one in operations:
        path = _PARAMETER.sub(r"{\1}", one.path)
        paths.setdefault(path, {})[one.method.lower()] = _operation(one, refs, queries)
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
    for one in _asked(operations):
        yield one.query, "validation"
    for one in operations:
        if one.body is not Nothing:
            yield one.body, "validation"
        for model in one.answers.values():
            if isinstance(model, type):
                yield model, "serialization"


def _asked(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield the operations that have a query, one for each kind of query."""
    yield from {one.query: one for one in operations if one.query is not Nothing}.values()


def _name(refs: Mapping[Any, Json], model: type[BaseModel]) -> str:
    """Return the name of a model in the document."""
    return str(refs[model, "validation"]["$ref"]).rpartition("/")[2]


def _operation(
    one: Operation, refs: Mapping[Any, Json], queries: Mapping[type[BaseModel], Json]
) -> Json:
    summary, _, description = one.text.partition("\n\n")
    needs = f"It needs the permission `{one.may}`."
    told: Json = {
        "operationId": one.name,
        "summary": " ".join(summary.split()),
        "description": f"{' '.join(description.split())} {needs}".strip(),
        "tags": [_tag(one.path)],
        "parameters": [*_parameters(one, queries.get(one.query, {}))],
        "responses": {**dict(_answers(one, refs)), "default": _problem(refs)},
    }
    if one.body is not Nothing:
        content = {"application/json": {"schema": refs[one.body, "validation"]}}
        is_required = any(field.is_required() for field in one.body.model_fields.values())
        told["requestBody"] = {"content": content, "required": is_required}
    return told


def _tag(path: str) -> str:
    """Return the first part of a path after the version."""
    return next(part for part in path.split("/") if part not in ("", "v1"))


def _parameters(one: Operation, query: Json) -> Iterator[Json]:
    for name in _PARAMETER.findall(one.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for name, schema in query.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": False, "schema": schema}
    if one.takes_key:
        yield _KEY
    if EVENTS in one.answers.values():
        yield _LAST_EVENT


def _answers(one: Operation, refs: Mapping[Any, Json]) -> Iterator[tuple[str, Json]]:
    for status, model in one.answers.items():
        told: Json = {"description": HTTPStatus(status).phrase}
        if model == EVENTS:
            told["content"] = {EVENTS: {"schema": {"type": "string"}}}
        elif model is not None:
            told["content"] = {"application/json": {"schema": refs[model, "serialization"]}}
        yield str(status), told


def _problem(refs: Mapping[Any, Json]) -> Json:
    schema = refs[Problem, "serialization"]
    return {"description": "An error", "content": {MEDIA_TYPE: {"schema": schema}}}
