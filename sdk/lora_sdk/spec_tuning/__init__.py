"""What runs before decoding: acceptance measurements, roofline choice of trees, tables."""
