package feedstore.trim;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class TrimTableGuardTest {
  private static final String GOOD =
      "|feedstore.trim.TrimObserver|1073741823|version=" + TrimVersion.OWN + ",cap=1000,slack=250";

  private static TableDescriptorBuilder table(String family) {
    return TableDescriptorBuilder.newBuilder(TableName.valueOf("following_feed"))
        .setColumnFamily(ColumnFamilyDescriptorBuilder.of(family));
  }

  private static TableDescriptor table(String family, String attribute) {
    return table(family).setValue("coprocessor$1", attribute).build();
  }

  private static void assertRefused(String reason, TableDescriptor table) {
    TrimTableGuard guard = new TrimTableGuard();
    String expected = "feedstore.trim.TrimObserver of following_feed: " + reason;
    assertEquals(
        expected,
        assertThrows(DoNotRetryIOException.class, () -> guard.preCreateTable(null, table, null))
            .getMessage());
    TableName name = table.getTableName();
    assertEquals(
        expected,
        assertThrows(
                DoNotRetryIOException.class, () -> guard.preModifyTable(null, name, null, table))
            .getMessage());
  }

  @Test
  void aGoodTable() throws IOException {
    TableDescriptor table = table("feed", GOOD);
    TrimTableGuard guard = new TrimTableGuard();
    assertDoesNotThrow(() -> guard.preCreateTable(null, table, null));
    assertSame(table, guard.preModifyTable(null, table.getTableName(), null, table));
  }

  @Test
  void tablesWithoutTheTrimAreNobodysBusiness() {
    TrimTableGuard guard = new TrimTableGuard();
    assertDoesNotThrow(() -> guard.preCreateTable(null, table("feed").build(), null));
    assertDoesNotThrow(
        () -> guard.preCreateTable(null, table("feed", "|some.Other|1|cap=0"), null));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ';',
      value = {
        "version=%s,cap=0,slack=250; argument cap is \"0\", expected a number from 1 to 100000",
        "version=%s,cap=1000; argument slack is missing, expected a number from 0 to 100000",
        "version=%s,cap=1000,slak=250; argument slack is missing, expected a number from 0 to"
            + " 100000",
        "version=%s,cap=1000,slack=250,keep=9; argument keep is not known, expected cap, slack,"
            + " version and no others",
        "version=9.9.9,cap=1000,slack=250; the table asks for version 9.9.9 of the trim, this"
            + " server has %s",
        "cap=1000,slack=250; argument version is missing, expected the version of the jar, as in"
            + " version=%s",
      })
  void badArguments(String arguments, String reason) {
    String own = TrimVersion.OWN;
    assertRefused(
        reason.replace("%s", own),
        table("feed", "|feedstore.trim.TrimObserver|1|" + arguments.replace("%s", own)));
  }

  @Test
  void anAttributeThatHBaseWouldSkip() {
    String reason =
        "the attribute is not of the form |feedstore.trim.TrimObserver|priority|name=value,...";
    assertRefused(reason, table("feed", "feedstore.trim.TrimObserver"));
    assertRefused(
        reason, table("feed", "|feedstore.trim.TrimObserver|high|version=1,cap=1,slack=1"));
  }

  @Test
  void theTrimTwice() {
    assertRefused(
        "named 2 times",
        table("feed").setValue("coprocessor$1", GOOD).setValue("coprocessor$2", GOOD).build());
  }

  @Test
  void noFamilyToTrim() {
    assertRefused("the table has no family feed", table("other", GOOD));
  }
}
