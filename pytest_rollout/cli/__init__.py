"""The console tool ``pytest-rollout``: look at what rollouts left, take it over, let it go."""
