"""The demo: a tree of files through Quire and back, with the server killed twice on the way. `scripts/demo [DIR]`."""
