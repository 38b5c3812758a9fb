"""A worker: threads that compute jobs, first come, first served."""

from __future__ import annotations

import logging
import queue
import threading

from lora_host.errors import ModelError
from lora_sdk.prefill.job import Computer, Job
from lora_sdk.prefill.shared_kv import NotComputed

LEAST_CACHED = 0.5  # part of a prompt that the boards must hold to compute the rest themselves


class Worker:
    """Runs jobs on a computer. After a failure it takes no more."""

    def __init__(self, name: str, computer: Computer) -> None:
        self.name = name
        self.context = computer.context
        self.takes_adapters = computer.takes_adapters
        self.by_name = computer.by_name
        self.failure: Exception | None = None
        self._told = False
        self._computer = computer
        self._closed = False
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name="lora-prefill", daemon=True)
            for _ in range(computer.at_once)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job. Does not wait."""
        self._jobs.put(job)

    def tell_failure(self, log: logging.Logger) -> None:
        """A warning, once, if it has failed."""
        if self.failure is not None and not self._told:
            self._told = True
            text = "prefill %s failed: %s; the boards compute prompts from now on"
            log.warning(text, self.name, self.failure)

    def close(self) -> None:
        """End the threads and release what the computer holds. Calling it again does nothing."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
            self._computer.close()
            for thread in self._threads:
                thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._closed:
                return
            try:
                if self.failure is not None:
                    raise self.failure
                if job.wanted():
                    self._computer.compute(job, job.give)
            except (ModelError, NotComputed) as error:
                # of this prompt: the boards find the first too, and name it
                job.error = error
            except Exception as error:  # whatever a worker raises: the boards compute prompts
                job.error = self.failure = error
            job.done = True
            del job  # its arrays
