"""Auditing checks: what a right solution, nothing, forged work and spoilt work score by them."""
