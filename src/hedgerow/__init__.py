"""Hedgerow."""
