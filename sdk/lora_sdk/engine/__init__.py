"""Engine: requests, the generation loop, and the API for programs."""
