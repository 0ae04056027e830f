"""What the histories share: checkers, swarms, sweeps, planted bugs, the tale of a run."""
