package feedstore.admin;

/** What was asked for cannot be done. The message is all that an operator gets to see. */
final class ToolException extends Exception {
  private static final long serialVersionUID = 1L;

  private final int status;

  ToolException(String message) {
    this(message, 1);
  }

  ToolException(String message, int status) {
    super(message);
    this.status = status;
  }

  /** What the tool ends with. */
  int status() {
    return status;
  }
}
