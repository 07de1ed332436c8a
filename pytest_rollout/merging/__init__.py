"""Runs of shards become one run, whatever their order, however often, and in whatever groups they are merged."""
