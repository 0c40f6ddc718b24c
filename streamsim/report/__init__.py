"""What people and programs read of a run: summaries, tables, exports. All of it derived from journals."""
