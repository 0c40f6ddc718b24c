"""Starting runs: from a command's options to a plan, a server process, its progress and its end."""
