"""One row a rollout, for training and for tables: as JSON lines or Parquet."""
