"""Webhooks and push notifications: their values in Temporal. Pure."""
