"""What `perdure deploy` does: which version of the workers gets new work, and what stays behind."""
