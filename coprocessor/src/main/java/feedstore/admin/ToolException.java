package feedstore.admin;

/** What was asked for cannot be done. The message is all that an operator gets to see. */
final class ToolException extends Exception {
  private static final long serialVersionUID = 1L;

  ToolException(String message) {
    super(message);
  }
}
