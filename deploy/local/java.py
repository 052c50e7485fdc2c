"""Java command lines: where java is, the arguments of every server of the stack, and how it logs."""

import os
from collections.abc import Sequence
from pathlib import Path

from deploy.local.home import Home
from deploy.local.processes import Command

LOG_CONF = "log4j2.properties"
AGENT_JAR = "jmx_prometheus_javaagent.jar"
AGENT_CONF = "agent.yml"

STARTS_FAST = "-XX:TieredStopAtLevel=1"
"""One of the two compilers: a server starts sooner and takes less of a few cores, but frequent work stays slower."""

# HBase and Hadoop look into the JDK's own classes, which Java 17 forbids without these.
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.util.random",
    "java.base/sun.nio.ch",
    "java.base/sun.security.util",
    "java.base/sun.security.x509",
)
_EXPORTED = (
    "java.base/jdk.internal.misc",
    "java.base/sun.net.dns",
    "java.base/sun.net.util",
    "java.security.jgss/sun.security.krb5",
)
HBASE_FLAGS = (
    *(word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
    *(word for package in _EXPORTED for word in ("--add-exports", f"{package}=ALL-UNNAMED")),
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "--add-modules",
    "jdk.unsupported",
)


def program() -> str:
    """`java` of JAVA_HOME, or else of the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def mark(home: Home, name: str) -> str:
    """A property that is not read: it tells the process of one server of one home from all others."""
    return f"-Dstack.server={home.root / name}"


def command(
    home: Home, name: str, *, jars: Sequence[Path], heap_mib: int, main: Sequence[str], flags: Sequence[str] = ()
) -> Command:
    """A JVM that is small: a local stack is seven servers on a few cores.

    jars: directories. main: the class and its arguments. The server's configuration precedes the jars on the class
    path.
    """
    own = mark(home, name)
    flags = (own, "-XX:+UseSerialGC", *flags)
    conf = home.conf(name)
    class_path = ":".join([str(conf), *(f"{folder}/*" for folder in jars)])
    argv = arguments(conf, class_path, heap_mib=heap_mib, main=main, flags=flags)
    return Command((program(), *argv), own)


def watched(jars: Path, conf: Path, address: str) -> str:
    """The option that has a JVM show its metrics. jars: where AGENT_JAR is. conf: where AGENT_CONF is, which says which
    of them. address: HOST:PORT where they are served; the JVM does not start if it is taken.
    """
    return f"-javaagent:{jars / AGENT_JAR}={address}:{conf / AGENT_CONF}"


def arguments(
    conf: Path, class_path: str, *, heap_mib: int, main: Sequence[str], flags: Sequence[str] = ()
) -> tuple[str, ...]:
    """The arguments of any server, behind the name of the program.

    conf: the directory with its configuration, which must be on the class path too. main: as for `command`.
    """
    return (
        *flags,
        f"-Xmx{heap_mib}m",
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:ErrorFile={conf / 'hs_err.log'}",
        "-XX:-UsePerfData",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={conf / LOG_CONF}",
        "-cp",
        class_path,
        *main,
    )


def log_conf(quiet: Sequence[str] = ()) -> str:
    """Everything from INFO goes to the standard output, which is the server's log; of `quiet` only warnings."""
    lines = [
        "appender.console.type = Console",
        "appender.console.name = console",
        "appender.console.layout.type = PatternLayout",
        "appender.console.layout.pattern = %d{ISO8601} %-5p [%t] %c{2}: %m%n",
        "rootLogger.level = info",
        "rootLogger.appenderRef.console.ref = console",
    ]
    for number, name in enumerate(quiet):
        lines += [f"logger.quiet{number}.name = {name}", f"logger.quiet{number}.level = warn"]
    return "\n".join(lines) + "\n"
