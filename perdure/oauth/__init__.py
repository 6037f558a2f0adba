"""Logins at authorization servers: bounded requests, and tokens for MCP servers that need them."""
