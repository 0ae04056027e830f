"""What operators do with bookies, start to end: each a command with checks before, progress, and a proof after.

`scripts/NAME ...` in a checkout, `python -m quire.cli.operations NAME ...` where quire is installed.
"""
