"""Executors: where an agent acts. One file each; the contract is in :mod:`.protocol`."""
