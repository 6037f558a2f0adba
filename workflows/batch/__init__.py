"""The workflows of batches."""
