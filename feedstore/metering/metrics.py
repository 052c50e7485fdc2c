"""The metrics of every process."""

from typing import Final

from feedstore.metering.definitions import EVERY, Definition, Label

_PROCESS: Final = Label(
    "process", of="the processes of one endpoint: the command (`work`, `serve`, ...), the `writer-CLUSTER`s of `work`"
)
_WHERE: Final = "feedstore/metering/process.py"

BUILD: Final = Definition(
    "feed_build_info",
    "gauge",
    "1, with the version of the program and of Python as labels",
    _WHERE,
    EVERY,
    (Label("version", of="the one that runs"), Label("python", of="the one that runs")),
)
CPU: Final = Definition(
    "feed_process_cpu_seconds_total", "counter", "Processor time, user and system", _WHERE, EVERY, (_PROCESS,)
)
RESIDENT: Final = Definition("feed_process_resident_bytes", "gauge", "Memory in use", _WHERE, EVERY, (_PROCESS,))
OPEN_FILES: Final = Definition(
    "feed_process_open_files", "gauge", "File descriptors that are open", _WHERE, EVERY, (_PROCESS,)
)
MAX_FILES: Final = Definition(
    "feed_process_max_files", "gauge", "File descriptors that may be open", _WHERE, EVERY, (_PROCESS,)
)
STARTED: Final = Definition(
    "feed_process_start_time_seconds",
    "gauge",
    "When the process began, in seconds since 1970 by its own clock",
    _WHERE,
    EVERY,
    (_PROCESS,),
)
THREADS: Final = Definition("feed_process_threads", "gauge", "Threads", _WHERE, EVERY, (_PROCESS,))

DEFINITIONS: Final = (BUILD, CPU, RESIDENT, OPEN_FILES, MAX_FILES, THREADS, STARTED)
