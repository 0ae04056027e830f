"""Driver side of a read: offsets, limits, holds, and the tasks that follow."""
