"""What operators and callers do to simulated turns: resets, forks, resumes and deploys."""
