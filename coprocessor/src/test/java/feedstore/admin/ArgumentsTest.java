package feedstore.admin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Command lines. What the commands do is tested on a real HBase. */
class ArgumentsTest {
  @Test
  void optionsStandAnywhere() throws UsageException {
    Arguments arguments =
        Arguments.parse(
            "major-compact",
            "--zookeeper",
            "a:1,b:2",
            "t",
            "--wait",
            "--region",
            "abc",
            "--timeout-s",
            "5");
    assertEquals(Arguments.Command.MAJOR_COMPACT, arguments.command());
    assertEquals("a:1,b:2", arguments.zookeeper());
    assertEquals(List.of("t"), arguments.operands());
    assertEquals("abc", arguments.region());
    assertTrue(arguments.isWaiting());
    assertEquals(5, arguments.timeoutS());
  }

  @Test
  void withoutOptions() throws UsageException {
    Arguments arguments = Arguments.parse("--zookeeper", "a:1", "regions", "t");
    assertNull(arguments.region());
    assertFalse(arguments.isWaiting());
    assertEquals(600, arguments.timeoutS());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "--zookeeper a:1",
        "regions t",
        "--zookeeper a:1 alter t",
        "--zookeeper a:1 regions",
        "--zookeeper a:1 regions t u",
        "--zookeeper a:1 cells t",
        "--zookeeper a:1 regions t --force",
        "--zookeeper a regions t",
        "--zookeeper a:1, regions t",
        "--zookeeper a:65536 regions t",
        "--zookeeper a:1 regions t --timeout-s 0",
        "--zookeeper a:1 regions t --timeout-s soon",
        "--zookeeper a:1 regions t --timeout-s",
      })
  void whatMakesNoSenseIsRefused(String line) {
    String[] words = line.isEmpty() ? new String[0] : line.split(" ");
    assertThrows(UsageException.class, () -> Arguments.parse(words));
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    assertEquals(2, TableTool.run(new PrintStream(out), new PrintStream(err), words));
    assertEquals(0, out.size());
    assertTrue(err.toString().startsWith("error: "), err.toString());
  }
}
