package feedstore.admin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Compactions that can never be. Those that are done are tested on a real HBase. */
class CompactionsTest {
  private static final TableName NAME = TableName.valueOf("feeds");

  @Test
  @Timeout(60)
  void aTableThatIsDisabledIsNotWaitedFor() {
    HRegionLocation closed = new HRegionLocation(RegionInfoBuilder.newBuilder(NAME).build(), null);
    RegionLocator locator =
        answering(RegionLocator.class, Map.of("getAllRegionLocations", List.of(closed)));
    Connection connection = answering(Connection.class, Map.of("getRegionLocator", locator));
    Admin admin = answering(Admin.class, Map.of("tableExists", true, "isTableDisabled", true));
    Table table = new Table(connection, admin, NAME, null);
    Exception error =
        assertThrows(ToolException.class, () -> new Compactions(admin, table).run(true));
    assertEquals("feeds is disabled: none of its regions is open", error.getMessage());
  }

  /** Gives the same answer to each call of a method, and nothing to calls of all others. */
  private static <T> T answering(Class<T> kind, Map<String, Object> answers) {
    return kind.cast(
        Proxy.newProxyInstance(
            kind.getClassLoader(),
            new Class<?>[] {kind},
            (self, method, words) -> answers.get(method.getName())));
  }
}
