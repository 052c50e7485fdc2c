package feedstore.trim;

import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.hadoop.hbase.DoNotRetryIOException;

/**
 * What a table asks of its trim, in the arguments of its attribute:
 *
 * <pre>coprocessor$1 = |feedstore.trim.TrimObserver|1073741823|version=0.1.0,cap=1000,slack=250
 * </pre>
 *
 * @param version the trim that the table was made for
 * @param cap how many entries of a feed a reader can reach
 * @param slack how many live entries are kept beyond the cap
 */
record TrimConfig(String version, int cap, int slack) {
  static final int CAP_MAX = 100_000;
  static final int SLACK_MAX = 100_000;

  /** All that a table may say. */
  static final List<String> ARGUMENTS = List.of("cap", "slack", "version");

  /**
   * Reads the arguments; none of them has a default.
   *
   * @param argument gives an argument by its name, null where it is missing
   * @throws DoNotRetryIOException one is missing or no good. Never anything but an IOException:
   *     HBase aborts a server for any other
   */
  static TrimConfig parse(UnaryOperator<String> argument) throws DoNotRetryIOException {
    String version = argument.apply("version");
    if (version == null || version.isBlank()) {
      throw bad("version", version, "the version of the jar, as in version=" + TrimVersion.OWN);
    }
    return new TrimConfig(
        version.strip(),
        number(argument, "cap", 1, CAP_MAX),
        number(argument, "slack", 0, SLACK_MAX));
  }

  /** How many live columns of a row a trim leaves. */
  int keep() {
    return cap + slack;
  }

  /** Whether this jar is the one that the table asks for. */
  boolean fits() {
    return version.equals(TrimVersion.OWN);
  }

  String misfit() {
    return "the table asks for version "
        + version
        + " of the trim, this server has "
        + TrimVersion.OWN;
  }

  private static int number(UnaryOperator<String> argument, String name, int least, int most)
      throws DoNotRetryIOException {
    String text = argument.apply(name);
    try {
      // A null is no number either.
      int number = Integer.parseInt(text == null ? null : text.strip());
      if (number >= least && number <= most) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Said below, in the words of the table's author.
    }
    throw bad(name, text, "a number from " + least + " to " + most);
  }

  private static DoNotRetryIOException bad(String name, String text, String expected) {
    String found = text == null ? "is missing" : "is \"" + text + "\"";
    return new DoNotRetryIOException("argument " + name + " " + found + ", expected " + expected);
  }
}
