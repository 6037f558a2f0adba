"""Schedules: they start turns at the times of a cron expression, and live in Temporal."""
