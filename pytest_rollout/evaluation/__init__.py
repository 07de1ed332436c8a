"""Trusted evaluation: run a candidate's work against checks, away from the agent and from pytest."""
