"""Mechanisms, accounting, noise that nobody else can draw, and the ledger of what was spent."""
