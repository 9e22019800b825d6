"""The command line. Command modules import the heavy stages inside their functions: `moarw check` must not load egglog or the search."""
