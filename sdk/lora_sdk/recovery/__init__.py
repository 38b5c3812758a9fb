"""Boards that fail, and weights that change."""
