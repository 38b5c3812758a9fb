"""Emulated boards behind XRT's own software emulation.

XRT starts one device process a board (`python -m lora_host.device_process`) and speaks to it over a
socket. Links connect boards, so the boards themselves live in one cluster process: the device
process hands its socket over to it and then only stands for the board's life. The cluster process
(`cluster_process.py`) drives the emulated boards through the same transport table as everything
else, and ends with its last device process."""
