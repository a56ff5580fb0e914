"""Tests of what is done with runs that have ended."""
