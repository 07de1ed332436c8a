"""From the results of runs to decisions: figures, comparisons, gates. Plain values, without pytest."""
