"""What an authorization server does wrong. The messages are for people and have no secrets."""

from __future__ import annotations


class OAuthError(Exception):
    """An authorization server, or what it protects, does not answer, or not as it should."""


class GrantRefusedError(OAuthError):
    """It has refused the login, its code or its refresh token: the person has to log in again."""
