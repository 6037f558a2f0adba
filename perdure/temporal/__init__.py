"""What all rooms share of Temporal: names, payloads, failures, history, connections."""
