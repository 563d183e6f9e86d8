"""Speed as ratios measured in one run, and the plain implementations that unbag is compared with."""
