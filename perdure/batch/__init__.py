"""A batch: its values in Temporal, its plan, its parts and the leases of its budget. Pure."""
