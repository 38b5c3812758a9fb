"""Tests with trained models that packages hold: `make real`."""
