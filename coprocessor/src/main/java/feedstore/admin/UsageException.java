package feedstore.admin;

/** The command line makes no sense. The message says what to write instead. */
final class UsageException extends Exception {
  private static final long serialVersionUID = 1L;

  UsageException(String message) {
    super(message);
  }
}
