package feedstore.admin;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * A command line, taken apart.
 *
 * @param zookeeper host:port, or several of them with commas between
 * @param command what to do
 * @param operands what follows the command
 * @param region the encoded name of the only region that is meant, or null
 * @param isWaiting whether to return only when it is done
 * @param timeoutS after how many seconds to give up
 * @param cellsMax how many cells to print at most
 */
record Arguments(
    String zookeeper,
    Command command,
    List<String> operands,
    String region,
    boolean isWaiting,
    int timeoutS,
    int cellsMax) {

  private static final int TIMEOUT_S = 600;
  private static final int TIMEOUT_S_MAX = 86_400;
  private static final int PORT_MAX = 65_535;
  private static final int CELLS = 1_000_000;

  /** What the tool can do: its name, and how many operands it takes. */
  enum Command {
    FLUSH("flush", 1, 1),
    COMPACT("compact", 1, 1),
    MAJOR_COMPACT("major-compact", 1, 1),
    REGIONS("regions", 1, 1),
    STORE_FILES("store-files", 1, 1),
    CELLS("cells", 2, 2),
    MOVE("move", 1, 2);

    final String word;
    final int operandsMin;
    final int operandsMax;

    Command(String word, int operandsMin, int operandsMax) {
      this.word = word;
      this.operandsMin = operandsMin;
      this.operandsMax = operandsMax;
    }

    private static Command of(String word) throws UsageException {
      for (Command command : values()) {
        if (command.word.equals(word)) {
          return command;
        }
      }
      throw new UsageException("no such command: " + word);
    }
  }

  static Arguments parse(String... words) throws UsageException {
    String zookeeper = null;
    String region = null;
    boolean isWaiting = false;
    int timeoutS = TIMEOUT_S;
    int cellsMax = CELLS;
    List<String> plain = new ArrayList<>();
    Iterator<String> rest = List.of(words).iterator();
    while (rest.hasNext()) {
      String word = rest.next();
      switch (word) {
        case "--zookeeper" -> zookeeper = value(word, rest);
        case "--region" -> region = value(word, rest);
        case "--wait" -> isWaiting = true;
        case "--timeout-s" -> timeoutS = number(word, value(word, rest), TIMEOUT_S_MAX);
        case "--limit" -> cellsMax = number(word, value(word, rest), Integer.MAX_VALUE);
        default -> {
          if (word.startsWith("-")) {
            throw new UsageException("no such option: " + word);
          }
          plain.add(word);
        }
      }
    }
    if (plain.isEmpty()) {
      throw new UsageException("a command is missing");
    }
    Command command = Command.of(plain.remove(0));
    if (zookeeper == null) {
      throw new UsageException("--zookeeper HOST:PORT is missing");
    }
    for (String server : zookeeper.split(",", -1)) {
      if (!server.matches("[^:]+:[0-9]{1,5}")
          || Integer.parseInt(server.substring(server.indexOf(':') + 1)) > PORT_MAX) {
        throw new UsageException(
            "--zookeeper takes HOST:PORT, or several with commas between, not " + zookeeper);
      }
    }
    if (plain.size() < command.operandsMin || plain.size() > command.operandsMax) {
      throw new UsageException("wrong number of operands for " + command.word);
    }
    return new Arguments(
        zookeeper, command, List.copyOf(plain), region, isWaiting, timeoutS, cellsMax);
  }

  private static String value(String option, Iterator<String> rest) throws UsageException {
    if (!rest.hasNext()) {
      throw new UsageException(option + " needs a value");
    }
    return rest.next();
  }

  private static int number(String option, String text, int most) throws UsageException {
    try {
      int number = Integer.parseInt(text);
      if (number >= 1 && number <= most) {
        return number;
      }
    } catch (NumberFormatException e) {
      // Said below.
    }
    throw new UsageException(option + " takes a number from 1 to " + most + ", not " + text);
  }
}
