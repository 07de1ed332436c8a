"""The doctor: which rung of isolation holds on this machine, why the better ones do not, and what to do about it."""
