"""Answers as text for people: tables, with sizes, rates and ages that can be read."""
