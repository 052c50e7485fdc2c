"""The metrics of every process."""

from typing import Final

from feedstore.metering.definitions import EVERY, Counted, Label

_PROCESS: Final = Label(
    "process", of="the processes of one endpoint: the command (`work`, `serve`, ...), the `writer-CLUSTER`s of `work`"
)
_OF_EACH: Final = Counted("feedstore/metering/process.py", EVERY)

BUILD: Final = _OF_EACH.gauge(
    "feed_build_info",
    "1, with the version of the program and of Python as labels",
    Label("version", of="the one that runs"),
    Label("python", of="the one that runs"),
)
CPU: Final = _OF_EACH.counter("feed_process_cpu_seconds_total", "Processor time, user and system", _PROCESS)
RESIDENT: Final = _OF_EACH.gauge("feed_process_resident_bytes", "Memory in use", _PROCESS)
OPEN_FILES: Final = _OF_EACH.gauge("feed_process_open_files", "File descriptors that are open", _PROCESS)
MAX_FILES: Final = _OF_EACH.gauge("feed_process_max_files", "File descriptors that may be open", _PROCESS)
THREADS: Final = _OF_EACH.gauge("feed_process_threads", "Threads", _PROCESS)
STARTED: Final = _OF_EACH.gauge(
    "feed_process_start_time_seconds", "When the process began, in seconds since 1970 by its own clock", _PROCESS
)
