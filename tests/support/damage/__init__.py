"""Damage to the files of a stopped server, case by case, and its effect on acknowledged data.

places.py       kinds of files and of damage (pure, except for the damage itself)
verdicts.py     verdicts on a case, and their table
standalone.py   a standalone server: the making of its folders, and the check of a damaged copy
alone.py        the same for a single bookie
runner.py       a process for each case, and a bound on those that run at once
"""
