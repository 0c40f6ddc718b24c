"""Episodes: what is replayed. `episode` is pure data, `dataset` a folder, `video` the door to PyAV."""
