"""Score the stored bundles of a run again, with the checks of today and without any agent."""
