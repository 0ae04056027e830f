"""Transactions: coordinators, and what topics and subscriptions keep of transactions that are not over."""
