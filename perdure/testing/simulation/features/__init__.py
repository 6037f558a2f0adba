"""What Perdure promises about features that a part of the simulations has, and schedules."""
