"""Synthetic tasks, one module per kind. A random.Random goes in; a Task comes out, whose answer is a function of its
prompt."""
