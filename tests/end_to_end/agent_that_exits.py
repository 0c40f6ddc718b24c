"""A module that ends the interpreter which imports it, as a script without a main guard does."""

import sys

sys.exit(7)
