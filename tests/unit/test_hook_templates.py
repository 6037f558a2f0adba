"""Templates and filters of hooks: which fields of a delivery they read, and what they insert."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import limits
from perdure.clients.gateway.hooks.templates import Delivery, Template, as_text, matches
from perdure.clients.gateway.problems import RefusedError

BODY: dict[str, Any] = {
    "text": "{/number} {{ {X-Event} \x00",
    "number": 7,
    "none": None,
    "list": [{"a": 1}, True],
    "a/b": {"~c": "deep"},
    "": "empty",
}
DELIVERY = Delivery("d-1", {"x-event": "opened"}, BODY)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{/text}", BODY["text"]),
        ("{{{/number}}} {X-Event} {x-event}", "{7} opened opened"),
        ("[{/none}] {/list} {/list/0/a} {/list/1}", '[] [{"a":1},true] 1 true'),
        ("{/a~1b/~0c} {/}", "deep empty"),
        ("no field", "no field"),
    ],
)
@pytest.mark.accepts("K6")
def test_template_inserts_fields_as_data(template: str, filled: str) -> None:
    """What is inserted is no template."""
    assert Template.of(template).filled(DELIVERY, as_text) == filled


@pytest.mark.accepts("K6")
def test_long_field_is_clipped() -> None:
    """With a note of both sizes."""
    delivery = Delivery("d-1", {}, {"text": "x" * 100_000})

    filled = Template.of("{/text}").filled(delivery, as_text)

    assert len(filled) <= limits.HOOK_FIELD_BYTES
    assert filled.endswith("of 100000 bytes]")


@pytest.mark.parametrize(
    "field",
    ["/missing", "/number/0", "/list/2", "/list/-1", "/list/01", "/list/a", "/text/0", "X-Other"],
)
@pytest.mark.accepts("K6")
def test_delivery_without_a_field_of_the_template_is_refused(field: str) -> None:
    """With a pointer to the field."""
    with pytest.raises(RefusedError, match=field) as refused:
        Template.of(f"a {{{field}}}").filled(DELIVERY, as_text)

    assert refused.value.status == 422
    assert [one.pointer for one in refused.value.invalid] == [
        f"#{field}" if field.startswith("/") else field
    ]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{", "single {"),
        ("a } b", "single }"),
        ("{}", "neither a JSON pointer"),
        ("{/a~2}", "neither a JSON pointer"),
        ("{a b}", "neither a JSON pointer"),
        ("{{/a}", "single }"),
        ("{/a}" * (limits.HOOK_FIELDS + 1), "more than 20 fields"),
    ],
)
@pytest.mark.accepts("K8")
def test_template_that_is_not_valid_is_refused(template: str, words: str) -> None:
    """When the file is read, and not when a delivery comes."""
    with pytest.raises(ValueError, match=words):
        Template.of(template)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({}, True),
        ({"X-Event": ("closed", "opened")}, True),
        ({"X-Event": ("opened",), "/number": (7,)}, True),
        ({"X-Event": ("opened",), "/number": (8,)}, False),
        ({"/list/1": (True,)}, True),
        ({"/list/1": (1,)}, False),
        ({"/list/0/a": (True,)}, False),
        ({"/missing": ("",)}, False),
        ({"/none": ("",)}, False),
    ],
)
@pytest.mark.accepts("K5")
def test_filter_compares_fields_with_values(wanted: dict[str, tuple[Any, ...]], fits: bool) -> None:
    """Each field has to have one of its values, of the same type."""
    assert matches(DELIVERY, wanted) is fits
