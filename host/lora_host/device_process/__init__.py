"""Emulated boards behind XRT's own software emulation.

XRT starts one device process per board (`python -m lora_host.device_process`) and talks to it over
a socket. Links connect boards, so all emulated boards run in one cluster process. The device
process passes its socket to the cluster process; after that, only its lifetime matters. The cluster
process (`cluster_process.py`) drives the emulated boards through the same transport table as all
other users. It ends with its last device process."""
