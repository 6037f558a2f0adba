"""The published schema of events is up to date with the types."""

from typing import get_args

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest

from perdure.clients.reading.events import kind_of
from perdure.turn.facts import Fact

from ..support.docs import event_schema


@pytest.mark.slow
@pytest.mark.accepts("E15")
def test_schema_of_events_is_that_of_the_types() -> None:
    """`python -m tests.support.docs.event_schema` updates it; a field that is removed or changes
    its type
    breaks readers.
    """
    assert event_schema.FILE.read_text(encoding="utf-8") == event_schema.text()
    jsonschema.Draft202012Validator.check_schema(event_schema.schema())


def test_every_kind_of_fact_has_a_public_view() -> None:
    """A new kind is described, too."""
    assert set(event_schema.PUBLIC) == {kind_of(fact) for fact in get_args(Fact)}
