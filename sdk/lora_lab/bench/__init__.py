"""Measurements on this computer: the speed of a model on emulated boards, compared with memory read
and copy bandwidth."""
