"""Secrets are redacted from everything that is shown or logged: which they are, and where they stand in a text."""
