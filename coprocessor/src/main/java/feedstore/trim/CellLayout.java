package feedstore.trim;

import java.nio.ByteBuffer;

/**
 * The cell layout of the feeds, as far as this side needs it. {@code feedstore/following/layout.py}
 * defines it; the golden vectors of {@code schemas/cell-layout.json} hold both to it.
 *
 * <p>Row: one byte of a hash of the user id, then the user id. Column: 2^63-1 minus the pin's
 * creation time in ms, then the pin id. All of it big-endian, so that HBase's order within a row is
 * the feed's: newest first.
 */
public final class CellLayout {
  /** The only family that is trimmed. */
  public static final String FAMILY = "feed";

  public static final int ROW_BYTES = 9;
  public static final int COLUMN_BYTES = 16;

  private static final long MULTIPLIER = 0x9E3779B97F4A7C15L;

  private CellLayout() {}

  /** The row key of a user's feed. */
  public static byte[] row(long user) {
    return ByteBuffer.allocate(ROW_BYTES)
        .put((byte) (user * MULTIPLIER >>> 56))
        .putLong(user)
        .array();
  }

  /** The pin of a column. The array must hold {@link #COLUMN_BYTES}. */
  public static long pin(byte[] column) {
    return ByteBuffer.wrap(column).getLong(Long.BYTES);
  }

  /** When the pin of a column was created, in ms. The array must hold {@link #COLUMN_BYTES}. */
  public static long createdMs(byte[] column) {
    return Long.MAX_VALUE - ByteBuffer.wrap(column).getLong();
  }
}
