package feedstore.admin;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class TableToolTest {
  private final ByteArrayOutputStream said = new ByteArrayOutputStream();

  private int run(String... words) {
    PrintStream err = new PrintStream(said, true, StandardCharsets.UTF_8);
    return TableTool.run(new PrintStream(new ByteArrayOutputStream()), err, words);
  }

  @Test
  void aClusterThatIsAwayHasAStatusOfItsOwn() throws IOException {
    int port;
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = free.getLocalPort();
    }
    assertEquals(3, run("--zookeeper", "127.0.0.1:" + port, "regions", "default:progress"));
    String expected = "error: no ZooKeeper answers at 127.0.0.1:" + port + "\n";
    assertEquals(expected, said.toString(StandardCharsets.UTF_8));
  }

  /** It is to be asked again later, as one that refuses connections. */
  @Test
  void aClusterThatDoesNotAnswerInTimeIsAway() throws IOException {
    try (ServerSocket silent = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      String zookeeper = "127.0.0.1:" + silent.getLocalPort();
      assertEquals(3, run("--zookeeper", zookeeper, "--timeout-s", "1", "regions", "progress"));
      String expected = "error: regions was not done after 1 s\n";
      assertEquals(expected, said.toString(StandardCharsets.UTF_8));
    }
  }

  @Test
  void aWrongCommandLineIsNoClusterThatIsAway() {
    assertEquals(2, run("--zookeeper", "127.0.0.1:1", "region", "default:progress"));
  }
}
