"""Going on with runs: from a checkpoint after the process has died, or from a DataTree."""
