"""Delayed delivery: messages of Shared and Key_Shared subscriptions that wait for their time."""
