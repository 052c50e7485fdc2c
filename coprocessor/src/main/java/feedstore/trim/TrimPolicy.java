package feedstore.trim;

/**
 * Which puts of a row a trim keeps: those of its first {@code keep} live columns, and of everything
 * that is before the last of them.
 *
 * <p>It is told of every cell of a row in HBase's order: columns ascending; in a column, timestamps
 * descending; at one timestamp, markers before puts. Markers are only told of: they all stay, and
 * HBase alone decides when one has lived long enough.
 *
 * <p>A column is live if one of its puts is masked by no marker. HBase usually takes masked puts
 * and older versions out before a trim sees them, but not those that an open scanner may still
 * read. So:
 *
 * <ul>
 *   <li>A masked put does not count. If it did, live entries behind it would be dropped in its
 *       place.
 *   <li>An older version does not count again.
 *   <li>Both stay as long as their column starts before the trim's end: HBase has reasons to keep
 *       them, and will drop them itself.
 *   <li>Of a column that starts behind the end, every put goes. If only the newest went, an older
 *       one would take its place.
 * </ul>
 *
 * <p>Its memory does not grow with the row.
 */
final class TrimPolicy {
  /**
   * How many markers of one timestamp for a whole family (DeleteFamilyVersion) a row may have. They
   * are the one thing that has to be remembered by the piece. Nothing of ours writes any; a row
   * with more is left as it is.
   */
  static final int FAMILY_VERSIONS_MAX = 64;

  private static final long NONE = Long.MIN_VALUE;

  private final int keep;

  private final long[] familyVersions = new long[FAMILY_VERSIONS_MAX];
  private int familyVersionCount;
  private boolean leaveRow;
  private long familyMaskedTo;
  private int live;

  private boolean behind;
  private boolean counted;
  private long columnMaskedTo;
  private long versionMasked;

  TrimPolicy(int keep) {
    this.keep = keep;
    startRow();
  }

  /** The next cell belongs to another row; its column is said next. */
  void startRow() {
    live = 0;
    familyMaskedTo = NONE;
    familyVersionCount = 0;
    leaveRow = false;
  }

  /** The next cell belongs to another column of the same row. */
  void startColumn() {
    behind = live >= keep;
    counted = false;
    columnMaskedTo = NONE;
    versionMasked = NONE;
  }

  /** DeleteFamily: masks every version of every column up to a time. */
  void familyMarker(long ts) {
    familyMaskedTo = Math.max(familyMaskedTo, ts);
  }

  /** DeleteFamilyVersion: masks the versions of every column at one time. */
  void familyVersionMarker(long ts) {
    if (familyVersionCount == FAMILY_VERSIONS_MAX) {
      leaveRow = true;
    } else {
      familyVersions[familyVersionCount++] = ts;
    }
  }

  /** DeleteColumn: masks every version of this column up to a time. */
  void columnMarker(long ts) {
    columnMaskedTo = Math.max(columnMaskedTo, ts);
  }

  /**
   * Delete: masks one version of this column. The puts at its time follow at once: the last one is
   * all there is to remember.
   */
  void versionMarker(long ts) {
    versionMasked = ts;
  }

  /** Whether to keep the put of this time in this column. */
  boolean keepsPut(long ts) {
    if (leaveRow) {
      return true;
    }
    if (behind) {
      return false;
    }
    if (!counted && !isMasked(ts)) {
      counted = true;
      live++;
    }
    return true;
  }

  private boolean isMasked(long ts) {
    // A put at a marker's own time is masked; one that is newer is not, wherever the marker is.
    return ts <= columnMaskedTo
        || ts <= familyMaskedTo
        || ts == versionMasked
        || isFamilyVersionMasked(ts);
  }

  private boolean isFamilyVersionMasked(long ts) {
    for (int i = 0; i < familyVersionCount; i++) {
      if (familyVersions[i] == ts) {
        return true;
      }
    }
    return false;
  }
}
