package feedstore.trim;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** The rules, one by one. Random rows are in {@link TrimmingScannerTest}. */
class TrimPolicyTest {
  private final TrimPolicy policy = new TrimPolicy(2);

  private boolean column(long ts) {
    policy.startColumn();
    return policy.keepsPut(ts);
  }

  @Test
  void theFirstLiveColumnsStay() {
    assertTrue(column(5));
    assertTrue(column(5));
    assertFalse(column(5));
    assertFalse(column(9));
  }

  @Test
  void everyRowHasItsOwn() {
    assertTrue(column(5));
    assertTrue(column(5));
    policy.startRow();
    assertTrue(column(5));
    assertTrue(column(5));
    assertFalse(column(5));
  }

  @Test
  void anOlderVersionDoesNotCountAgain() {
    assertTrue(column(5));
    assertTrue(policy.keepsPut(4));
    assertTrue(policy.keepsPut(3));
    assertTrue(column(5));
    assertTrue(policy.keepsPut(4), "an older version of the last column that counts");
    assertFalse(column(5));
    assertFalse(policy.keepsPut(4), "of what is trimmed, no older version may take its place");
  }

  @Test
  void aMaskedColumnDoesNotCount() {
    policy.startColumn();
    policy.columnMarker(7);
    assertTrue(policy.keepsPut(7), "at the same time the marker wins");
    assertTrue(policy.keepsPut(6));
    assertTrue(column(1));
    assertTrue(column(1));
    assertFalse(column(1));
  }

  @Test
  void aPutNewerThanItsMarkerCounts() {
    policy.startColumn();
    policy.keepsPut(8);
    policy.columnMarker(7);
    policy.keepsPut(6);
    assertTrue(column(1));
    assertFalse(column(1));
  }

  @Test
  void aMarkerOfOneColumnMasksNoOther() {
    policy.startColumn();
    policy.columnMarker(7);
    policy.versionMarker(7);
    assertTrue(column(7));
    assertTrue(column(7));
    assertFalse(column(7));
  }

  @Test
  void aMarkerOfOneVersionMasksThatOne() {
    policy.startColumn();
    policy.versionMarker(7);
    policy.keepsPut(7);
    assertTrue(column(1));
    assertTrue(column(1));
    assertFalse(column(1));

    policy.startRow();
    policy.startColumn();
    policy.versionMarker(7);
    policy.keepsPut(7);
    policy.keepsPut(6); // which shows again, and counts
    assertTrue(column(1));
    assertFalse(column(1));
  }

  @Test
  void aMarkerOfTheFamilyMasksWhatIsNotNewerInEveryColumn() {
    policy.familyMarker(7);
    policy.familyMarker(3);
    assertTrue(column(7));
    assertTrue(column(1));
    assertTrue(column(8));
    assertTrue(column(9));
    assertFalse(column(9));
    policy.startRow();
    assertTrue(column(1));
    assertTrue(column(1));
    assertFalse(column(1), "not in the next row");
  }

  @Test
  void aMarkerOfOneTimeOfTheFamilyMasksThatTime() {
    policy.familyVersionMarker(7);
    policy.familyVersionMarker(5);
    assertTrue(column(7));
    assertTrue(column(5));
    assertTrue(column(6));
    assertTrue(column(8));
    assertFalse(column(8));
  }

  @Test
  void aRowWithTooManyTimesToRememberIsLeftAlone() {
    for (int ts = 0; ts <= TrimPolicy.FAMILY_VERSIONS_MAX; ts++) {
      policy.familyVersionMarker(ts);
    }
    for (int i = 0; i < 10; i++) {
      assertTrue(column(1_000));
    }
    policy.startRow();
    int kept = 0;
    for (int i = 0; i < 10; i++) {
      kept += column(1_000) ? 1 : 0;
    }
    assertEquals(2, kept);
  }
}
