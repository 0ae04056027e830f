"""Operations on bookies, start to end: each is a command with checks before, progress, and a verification after.

`scripts/NAME ...` in a checkout, `python -m quire.cli.operations NAME ...` where quire is installed.
"""
