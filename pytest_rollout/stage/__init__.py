"""Stages: baselines, copy-on-write and copied stages, what changed, and safe reading of it."""
