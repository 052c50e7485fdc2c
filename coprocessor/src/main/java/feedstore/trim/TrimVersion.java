package feedstore.trim;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;

/** The version of this jar; the manifest says the same. */
final class TrimVersion {
  /**
   * "unknown" if the jar was built wrong, which no table asks for: a failing initializer would
   * abort the server.
   */
  static final String OWN = read();

  private TrimVersion() {}

  private static String read() {
    Properties properties = new Properties();
    try (InputStream file = TrimVersion.class.getResourceAsStream("trim.properties")) {
      if (file != null) {
        properties.load(file);
      }
    } catch (IOException e) {
      return "unknown";
    }
    return properties.getProperty("version", "unknown");
  }
}
