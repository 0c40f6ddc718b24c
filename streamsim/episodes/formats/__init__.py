"""One module per annotation format that can be imported into a dataset folder."""
