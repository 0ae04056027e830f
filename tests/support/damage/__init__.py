"""Damage to the files of a stopped server, case by case, and what becomes of what was acknowledged.

places.py       which files there are, and the kinds of damage (pure, but for the file that is damaged)
verdicts.py     what a case may end with, and the table
standalone.py   a standalone server: how its folders are made, and the check of a damaged copy
alone.py        the same of a bookie alone
runner.py       a process for each case, as many beside each other as asked
"""
