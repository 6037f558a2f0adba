"""The certificate authorities that HTTP clients trust."""

from __future__ import annotations

import pytest

from perdure.oauth.certificates import certificates

from ..support.certificates import certificate

__all__ = ["certificate"]


def test_authorities_are_loaded_once_until_others_are_named(
    request: pytest.FixtureRequest,
) -> None:
    """All clients of a process have the same ones."""
    before, again = certificates(), certificates()
    request.getfixturevalue("certificate")  # names its own authority
    after = certificates()

    assert before is again is not after
    assert len(after.get_ca_certs()) == 1
