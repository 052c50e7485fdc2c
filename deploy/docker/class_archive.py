"""Lays out the classes of the servers once, when the image is built, so that their JVMs need not do it at every start.

A JVM that meets a class for the first time reads it out of its jar, checks it and links it. That takes seconds of a
core for each server that starts. It takes them again when a server does something for the first time, such as the
recovery of a dead server's regions, for which everybody waits. With class data sharing (JEP 310) the JVM maps the
classes from one file, whose memory all containers share.

    python3 class_archive.py JARS ARCHIVE
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

_PACKAGES = (
    "com/codahale/",
    "com/ctc/wstx/",
    "com/github/benmanes/",
    "com/lmax/",
    "io/netty/",
    "io/opentelemetry/",
    "org/apache/commons/configuration2/",
    "org/apache/hadoop/conf/",
    "org/apache/hadoop/fs/",
    "org/apache/hadoop/hbase/",
    "org/apache/hadoop/hdfs/",
    "org/apache/hadoop/io/",
    "org/apache/hadoop/ipc",
    "org/apache/hadoop/metrics2/",
    "org/apache/hadoop/net/",
    "org/apache/hadoop/security/",
    "org/apache/hadoop/thirdparty/",
    "org/apache/hadoop/util/",
    "org/apache/hbase/thirdparty/com/google/",
    "org/apache/hbase/thirdparty/io/netty/",
    "org/apache/logging/log4j/",
    "org/apache/thrift/",
    "org/apache/zookeeper/",
    "org/codehaus/stax2/",
    "org/slf4j/",
)
_NOT_SERVED = (
    "io/netty/handler/codec/",
    "io/netty/handler/ssl/",
    "org/apache/hadoop/hbase/mapred",
    "org/apache/hadoop/hbase/rest/",
    "org/apache/hadoop/hbase/thrift/generated/",
    "org/apache/hadoop/hdfs/nfs/",
    "org/apache/hadoop/hdfs/server/federation/",
    "org/apache/hadoop/hdfs/tools/",
    "org/apache/hbase/thirdparty/io/netty/handler/codec/",
    "org/apache/hbase/thirdparty/io/netty/handler/ssl/",
)
"""Large packages that no server of this layout runs."""


def class_path(folder: Path) -> str:
    """The jars of a folder in a fixed order: an archive is valid for the class path that it was made with, and for
    longer ones that begin with it.
    """
    return ":".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def classes(folder: Path) -> Iterator[str]:
    """Names of the classes that servers may need, as the JVM writes them."""
    for jar in sorted(folder.glob("*.jar")):
        for name in zipfile.ZipFile(jar).namelist():
            if name.endswith(".class") and name.startswith(_PACKAGES) and not name.startswith(_NOT_SERVED):
                yield name.removesuffix(".class")


def main(folder: Path, archive: Path) -> int:
    """Writes the archive; returns the exit status of the JVM that does it."""
    with tempfile.NamedTemporaryFile("w", suffix=".classes") as listed:
        listed.writelines(f"{name}\n" for name in sorted(set(classes(folder))))
        listed.flush()
        argv = (
            "java", "-Xshare:dump", "-Xlog:disable", "-Xlog:all=error:stderr", f"-XX:SharedClassListFile={listed.name}",
            f"-XX:SharedArchiveFile={archive}", "-Xmx1g", "-cp", class_path(folder),
        )  # fmt: skip
        return subprocess.run(argv, check=False).returncode  # noqa: S603 - of the image


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
