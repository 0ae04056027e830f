"""Where each subscription stands; itself kept in ledgers.

from cursors.cursor import Cursor          read position, mark-delete position, acknowledge, rewind, seek
from cursors.config import CursorConfig
"""
