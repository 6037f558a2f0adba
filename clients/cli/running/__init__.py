"""What the commands do once their modules are loaded."""
