"""Offline tuning of speculation: acceptance measurements, trees chosen by roofline, tables."""
