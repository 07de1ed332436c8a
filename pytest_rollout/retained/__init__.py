"""What becomes of a rollout's work: look at it, take it over, or let it go."""
