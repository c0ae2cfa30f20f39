"""Publishes rows."""
