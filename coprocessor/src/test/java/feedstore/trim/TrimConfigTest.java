package feedstore.trim;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class TrimConfigTest {
  private static Map<String, String> arguments() {
    return new HashMap<>(Map.of("version", TrimVersion.OWN, "cap", "1000", "slack", "250"));
  }

  @Test
  void theVersionIsThatOfTheModule() {
    assertTrue(TrimVersion.OWN.matches("\\d+\\.\\d+\\.\\d+"), TrimVersion.OWN);
  }

  @Test
  void whatATableAsksFor() throws DoNotRetryIOException {
    TrimConfig config = TrimConfig.parse(arguments()::get);
    assertEquals(new TrimConfig(TrimVersion.OWN, 1000, 250), config);
    assertEquals(1250, config.keep());
    assertTrue(config.fits());
  }

  @ParameterizedTest
  @ValueSource(strings = {"version", "cap", "slack"})
  void nothingHasADefault(String name) {
    Map<String, String> arguments = arguments();
    arguments.remove(name);
    String message =
        assertThrows(DoNotRetryIOException.class, () -> TrimConfig.parse(arguments::get))
            .getMessage();
    assertTrue(message.startsWith("argument " + name + " is missing, expected "), message);
  }

  @ParameterizedTest
  @CsvSource({
    "cap,0",
    "cap,-1",
    "cap,100001",
    "cap,1e3",
    "cap,''",
    "cap,99999999999",
    "slack,-1",
    "slack,100001",
    "slack,1000;"
  })
  void whatIsOutOfRangeIsNamed(String name, String value) {
    Map<String, String> arguments = arguments();
    arguments.put(name, value);
    String message =
        assertThrows(DoNotRetryIOException.class, () -> TrimConfig.parse(arguments::get))
            .getMessage();
    assertTrue(
        message.startsWith("argument " + name + " is \"" + value + "\", expected a number from "),
        message);
  }

  @ParameterizedTest
  @CsvSource({"1,0", "100000,100000"})
  void theBoundsThemselvesAreFine(String cap, String slack) throws DoNotRetryIOException {
    Map<String, String> arguments = arguments();
    arguments.put("cap", cap);
    arguments.put("slack", slack);
    assertEquals(
        Integer.parseInt(cap) + Integer.parseInt(slack), TrimConfig.parse(arguments::get).keep());
  }

  @Test
  void anotherVersionDoesNotFit() throws DoNotRetryIOException {
    Map<String, String> arguments = arguments();
    arguments.put("version", "0.0.9");
    TrimConfig config = TrimConfig.parse(arguments::get);
    assertFalse(config.fits());
    assertEquals(
        "the table asks for version 0.0.9 of the trim, this server has " + TrimVersion.OWN,
        config.misfit());
  }
}
