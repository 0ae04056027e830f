"""Cursors: the position of each subscription in a log, itself stored in ledgers.

from cursors.cursor import Cursor          read position, mark-delete position, acknowledge, rewind, seek
from cursors.config import CursorConfig
"""
