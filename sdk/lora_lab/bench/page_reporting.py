"""Free page reporting: a virtual machine reports its free pages to the host, which makes their next
touch slow. Linux reports all free pages two seconds after memory was freed."""

from __future__ import annotations

import time
from pathlib import Path

DRIVER = Path("/sys/bus/virtio/drivers/virtio_balloon")
REPORTING = 5  # VIRTIO_BALLOON_F_REPORTING, virtio 1.2, section 5.5.3
REPORT_SECONDS = 2.2  # mm/page_reporting.c: 2 s, plus time for the work


def reports_free_pages(driver: Path = DRIVER) -> bool:
    """Whether this machine reports free pages."""
    features = [path.read_text() for path in driver.glob("virtio*/features")]
    return any(bits[REPORTING : REPORTING + 1] == "1" for bits in features)


def wait_for_report() -> None:
    """Return when all pages that were free on the call are reported. Pages held until then and
    freed after are fast to touch for two seconds. Returns at once if nothing is reported."""
    if reports_free_pages():
        time.sleep(REPORT_SECONDS)
