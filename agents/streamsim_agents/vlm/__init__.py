"""Vision language models as agents: the only door to torch and transformers."""
