"""Who acts, and through what: how requests to Temporal say so, and how that is read."""
