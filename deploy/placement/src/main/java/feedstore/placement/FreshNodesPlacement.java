package feedstore.placement;

import java.util.EnumMap;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicyDefault;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeDescriptor;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeStorageInfo;
import org.apache.hadoop.net.Node;

/**
 * Hadoop's default placement of blocks, except that it never chooses a stale DataNode: one that has not been heard of for
 * {@code dfs.namenode.stale.datanode.interval}.
 *
 * <p>The default avoids stale nodes only as long as enough others are left. Where three replicas are asked for and one of three
 * nodes is dead, it falls back to the dead one; the pipeline then waits for it, several seconds for each file, and a write-ahead
 * log that is split writes one file for each region. This policy hands out a shorter pipeline instead. The NameNode adds the
 * missing replica as soon as a node is there to take it, and {@code dfs.namenode.replication.min} still bounds how few it may be.
 *
 * <p>Named by {@code dfs.block.replicator.classname} in the NameNode's configuration.
 */
public final class FreshNodesPlacement extends BlockPlacementPolicyDefault {

    /** For the NameNode, which makes it by reflection. */
    public FreshNodesPlacement() {}

    // Every choice of a target begins in one of these two. The default calls them a second time, with avoidStaleNodes unset, when
    // the first time did not find enough nodes.

    @Override
    protected Node chooseTargetInOrder(
            int numOfReplicas,
            Node writer,
            Set<Node> excludedNodes,
            long blocksize,
            int maxNodesPerRack,
            List<DatanodeStorageInfo> results,
            boolean avoidStaleNodes,
            boolean newBlock,
            EnumMap<StorageType, Integer> storageTypes)
            throws NotEnoughReplicasException {
        return super.chooseTargetInOrder(
                numOfReplicas, writer, excludedNodes, blocksize, maxNodesPerRack, results, true, newBlock, storageTypes);
    }

    @Override
    protected void chooseFavouredNodes(
            String src,
            int numOfReplicas,
            List<DatanodeDescriptor> favoredNodes,
            Set<Node> favoriteAndExcludedNodes,
            long blocksize,
            int maxNodesPerRack,
            List<DatanodeStorageInfo> results,
            boolean avoidStaleNodes,
            EnumMap<StorageType, Integer> storageTypes)
            throws NotEnoughReplicasException {
        super.chooseFavouredNodes(
                src,
                numOfReplicas,
                favoredNodes,
                favoriteAndExcludedNodes,
                blocksize,
                maxNodesPerRack,
                results,
                true,
                storageTypes);
    }
}
