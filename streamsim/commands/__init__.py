"""One module per command of the command line; each imports what is heavy only when it runs."""
