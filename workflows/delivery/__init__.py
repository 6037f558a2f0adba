"""The workflows that deliver webhooks and push notifications."""
