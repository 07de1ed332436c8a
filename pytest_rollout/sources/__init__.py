"""Where a workspace comes from when it is no folder of the suite: a commit of a repository, an archive."""
