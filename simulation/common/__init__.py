"""Common parts of the histories: checkers, swarms, sweeps, planted bugs, the tale of a run."""
