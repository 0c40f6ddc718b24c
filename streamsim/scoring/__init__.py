"""Pure functions over journals and answer keys; one module per benchmark."""
