"""Agents: what acts in a stage. One file each; the contract is in :mod:`.protocol`."""
