package feedstore.admin;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class TableTest {
  private final FakeTable there = new FakeTable();

  /** A runbook asks which region is away, and the server that hangs is the reason. */
  @Test
  void aServerThatHangsHidesNoOther() throws Exception {
    there.addRegion(FakeTable.S1);
    there.addRegion(FakeTable.S2);
    there.addRegion(FakeTable.S1);
    there.hanging.add(FakeTable.S1);
    Table table = there.table();
    for (int look = 0; look < 3; look++) {
      List<Boolean> open = table.regions().stream().map(each -> each.metrics() != null).toList();
      assertEquals(List.of(false, true, false), open);
    }
    assertEquals(1, there.hung.get());
  }

  @Test
  void aServerThatAlwaysNeedsLongerIsWorkedOnByItsLateAnswers() throws Exception {
    FakeTable.FakeRegion slow = there.addRegion(FakeTable.S1);
    FakeTable.FakeRegion well = there.addRegion(FakeTable.S2);
    there.slow.add(FakeTable.S1);
    Table table = there.table(20);
    table.work(() -> new Flush(there.admin()));
    assertEquals(List.of("flush"), slow.said);
    assertEquals(List.of("flush"), well.said);
  }
}
