"""Free page reporting: a virtual machine tells its host which pages are free, and they are slow to
touch again. Linux does that two seconds after something was freed, for all that is free then."""

from __future__ import annotations

import time
from pathlib import Path

DRIVER = Path("/sys/bus/virtio/drivers/virtio_balloon")
REPORTING = 5  # VIRTIO_BALLOON_F_REPORTING, virtio 1.2, section 5.5.3
REPORT_SECONDS = 2.2  # mm/page_reporting.c: 2 s, and some for the work itself


def reports_free_pages(driver: Path = DRIVER) -> bool:
    """Whether this machine is one that does so."""
    features = [path.read_text() for path in driver.glob("virtio*/features")]
    return any(bits[REPORTING : REPORTING + 1] == "1" for bits in features)


def wait_for_report() -> None:
    """Returns when all that was free on the call has been reported; what is held until then, and
    freed after, is quick to touch for two seconds. At once where nothing is reported."""
    if reports_free_pages():
        time.sleep(REPORT_SECONDS)
