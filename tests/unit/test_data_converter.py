"""The data converter of a connection, and invalid ones, which are refused before any request."""

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes

from perdure import Agent, errors
from perdure.clients import AgentClient
from perdure.temporal.data_converter import DEFAULT, VARIABLE, chosen
from perdure.worker import AgentWorker

from ..support import encrypting


@pytest.mark.accepts("P15")
@pytest.mark.parametrize("name", ["converter", "made"])
def test_variable_names_a_converter_or_a_function_that_returns_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With a codec, failures are encoded; an argument overrides the variable, and the default is
    Temporal's own.
    """
    assert chosen() is DEFAULT
    monkeypatch.setenv(VARIABLE, f"tests.support.encrypting:{name}")
    found = chosen()

    assert found.payload_codec is encrypting.converter.payload_codec
    assert found.failure_converter_class is DefaultFailureConverterWithEncodedAttributes
    assert chosen(pydantic_data_converter) is pydantic_data_converter


@pytest.mark.accepts("P18")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "codec",
            (
                "'codec' is not module:name; for a converter called `converter` in codec.py it is"
                " codec:converter"
            ),
        ),
        (":converter", "':converter' is not module:name"),
        (
            "no_such_module:converter",
            (
                "the module 'no_such_module' of PERDURE_DATA_CONVERTER cannot be imported:"
                " ModuleNotFoundError: No module"
            ),
        ),
        (
            "tests.support.encrypting:conveter",
            (
                "PERDURE_DATA_CONVERTER=tests.support.encrypting:conveter: the module"
                " 'tests.support.encrypting'"
                " has no attribute 'conveter'"
            ),
        ),
        (
            "tests.support.encrypting:no_converter",
            (
                "is a str; it must be a temporalio.converter.DataConverter, or a function that"
                " returns one"
            ),
        ),
        (
            "tests.support.encrypting:broken",
            "tests.support.encrypting:broken() of PERDURE_DATA_CONVERTER failed: ValueError in ",
        ),
        (
            "tests.support.encrypting:missing",
            "failed: ModuleNotFoundError: No module named 'no_such_package'",
        ),
    ],
)
async def test_converter_that_cannot_be_loaded_is_named_and_no_key_is_shown(
    monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    """The error is raised before any request; an error that may quote a key is reported by class
    and line.
    """
    monkeypatch.setenv(VARIABLE, target)
    with pytest.raises(errors.ConfigurationError) as caught:
        await AgentClient.connect("127.0.0.1:1")

    assert said in caught.value.message
    assert (
        "planted-key"
        not in f"{caught.value.message} {caught.value.__cause__!r} {caught.value.__context__!r}"
    )


@pytest.mark.accepts("P19")
async def test_payload_converter_that_changes_values_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a user's client, in a worker and in the environment; one that does not change JSON is
    accepted.
    """
    foreign = DataConverter(payload_converter_class=encrypting.Foreign)
    client = await Client.connect("127.0.0.1:1", lazy=True, data_converter=foreign)
    worker = AgentWorker(Agent(name="a", model="offline:librarian"))
    with pytest.raises(
        errors.ConfigurationError,
        match="the payload converter Foreign cannot carry Perdure's payloads",
    ):
        AgentClient.from_temporal(client)
    with pytest.raises(errors.ConfigurationError, match="encrypt or compress in a payload_codec"):
        worker.build(client)
    with pytest.raises(errors.ConfigurationError, match="Foreign"):
        chosen(foreign)
    with pytest.raises(
        errors.ConfigurationError,
        match=(
            r"data_converter must be a temporalio\.converter\.DataConverter, or None, not 'codec'"
        ),
    ):
        chosen("codec")  # type: ignore[arg-type]

    AgentClient.from_temporal(
        await Client.connect("127.0.0.1:1", lazy=True, data_converter=pydantic_data_converter)
    )
