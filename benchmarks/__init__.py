"""Speed, shown as ratios in one interleaved run."""
