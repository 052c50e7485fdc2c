package feedstore.placement;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(120)
class FreshNodesPlacementTest {
    @TempDir
    private Path folder;

    @Test
    void aStaleNodeIsInNoPipelineEvenWhereTooFewAreLeft() throws IOException {
        try (SmallHdfs hdfs = new SmallHdfs(folder, 3, FreshNodesPlacement.class)) {
            assertEquals(3, hdfs.written("all-fresh").size());
            hdfs.makeStale(1);
            assertEquals(Set.of(hdfs.transferPort(0), hdfs.transferPort(2)), hdfs.written("one-stale"));
        }
    }

    @Test
    void aNodeThatIsBackIsUsedAgain() throws IOException {
        try (SmallHdfs hdfs = new SmallHdfs(folder, 3, FreshNodesPlacement.class)) {
            hdfs.makeStale(2);
            assertEquals(2, hdfs.written("one-stale").size());
            hdfs.makeFresh(2);
            assertEquals(3, hdfs.written("none-stale").size());
        }
    }

    @Test
    void noFileIsWrittenWhereAllNodesAreStale() throws IOException {
        try (SmallHdfs hdfs = new SmallHdfs(folder, 2, FreshNodesPlacement.class)) {
            hdfs.makeStale(0);
            hdfs.makeStale(1);
            assertThrows(IOException.class, () -> hdfs.written("nowhere"));
        }
    }

    /** What this policy is for. Where Hadoop no longer does so, it is not needed any more. */
    @Test
    void hadoopsOwnPolicyFallsBackToAStaleNode() throws IOException {
        try (SmallHdfs hdfs = new SmallHdfs(folder, 3, null)) {
            hdfs.makeStale(1);
            assertTrue(hdfs.written("one-stale").contains(hdfs.transferPort(1)));
        }
    }
}
