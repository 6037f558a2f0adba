"""The state of a turn that a later release has recorded."""


class NeedsLaterReleaseError(Exception):
    """Fails the workflow task, which a worker of a later release then completes."""
