"""What a step would take on real boards: modelled time, never measured, independent of values."""
