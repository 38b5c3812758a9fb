"""From a model and its plan to the command lists that boards run."""
