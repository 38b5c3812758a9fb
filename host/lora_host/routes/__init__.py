"""Optional access to boards through other Python packages: `pyxrt_route` (XRT's module: boards,
their properties and sensors) and `pynq_route` (overlay and buffers as PYNQ objects, for notebooks).
Nothing else needs them. They import those packages only when a function is called, because the
import accesses the hardware."""
