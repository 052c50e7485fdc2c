package feedstore.placement;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.server.blockmanagement.DatanodeManager;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.util.Time;

/** A real NameNode and real DataNodes in this process, whose heartbeats count only when a test says so. */
final class SmallHdfs implements AutoCloseable {
    private static final long STALE_MS = 600_000;

    static {
        // Several servers of a kind in one process share the names of their metrics, and would refuse to start.
        DefaultMetricsSystem.setMiniClusterMode(true);
    }

    private final Configuration conf;
    private final NameNode nameNode;
    private final List<DataNode> dataNodes = new ArrayList<>();

    /** policy: the class of the block placement; null for Hadoop's own. */
    SmallHdfs(Path folder, int nodes, Class<?> policy) throws IOException {
        conf = new Configuration();
        conf.set("fs.defaultFS", "hdfs://127.0.0.1:0");
        conf.set("dfs.namenode.http-address", "127.0.0.1:0");
        conf.set("dfs.namenode.name.dir", folder.resolve("name").toUri().toString());
        conf.setInt("dfs.namenode.safemode.threshold-pct", 0);
        conf.setInt("dfs.namenode.safemode.extension", 0);
        conf.setBoolean("dfs.namenode.redundancy.considerLoad", false);
        conf.setBoolean("dfs.namenode.avoid.read.stale.datanode", true);
        conf.setBoolean("dfs.namenode.avoid.write.stale.datanode", true);
        conf.setLong("dfs.namenode.stale.datanode.interval", STALE_MS);
        // A node that is marked stale must not become fresh again by itself: the next heartbeat is an hour away.
        conf.set("dfs.heartbeat.interval", "3600s");
        // How many of the nodes may be stale before Hadoop's own policy gives up at once; here it shall try.
        conf.setFloat("dfs.namenode.write.stale.datanode.ratio", 1.0f);
        // The client asks for no other node where the pipeline is short.
        conf.set("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER");
        if (policy != null) {
            conf.set("dfs.block.replicator.classname", policy.getName());
        }
        NameNode.format(conf);
        nameNode = new NameNode(conf);
        FileSystem.setDefaultUri(conf, "hdfs://127.0.0.1:" + nameNode.getNameNodeAddress().getPort());
        for (int node = 0; node < nodes; node++) {
            dataNodes.add(dataNode(folder.resolve("data" + node)));
        }
    }

    private DataNode dataNode(Path folder) throws IOException {
        Configuration own = new Configuration(conf);
        Files.createDirectories(folder);
        own.set("dfs.datanode.data.dir", folder.toUri().toString());
        for (String key : List.of("dfs.datanode.address", "dfs.datanode.http.address", "dfs.datanode.ipc.address")) {
            own.set(key, "127.0.0.1:0");
        }
        DataNode made = DataNode.instantiateDataNode(new String[0], own);
        made.runDatanodeDaemon();
        while (!isKnown(made)) {
            Thread.onSpinWait();
        }
        return made;
    }

    /** Whether the NameNode has had a first heartbeat of it: before that, it knows of no place to put a block. */
    private boolean isKnown(DataNode node) {
        return node.isDatanodeFullyStarted()
                && manager().getDatanode(node.getDatanodeUuid()) != null
                && manager().getDatanode(node.getDatanodeUuid()).isHeartbeatedSinceRegistration();
    }

    private DatanodeManager manager() {
        return nameNode.getNamesystem().getBlockManager().getDatanodeManager();
    }

    int transferPort(int node) {
        return dataNodes.get(node).getXferPort();
    }

    /** As if nothing had been heard of the node for twice the interval. */
    void makeStale(int node) {
        manager().getDatanode(dataNodes.get(node).getDatanodeUuid()).setLastUpdateMonotonic(Time.monotonicNow() - 2 * STALE_MS);
    }

    void makeFresh(int node) {
        manager().getDatanode(dataNodes.get(node).getDatanodeUuid()).setLastUpdateMonotonic(Time.monotonicNow());
    }

    /** Writes a file with three replicas and returns the transfer ports of the nodes of its pipeline. */
    Set<Integer> written(String name) throws IOException {
        org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(File.separator + name);
        try (FileSystem files = FileSystem.newInstance(conf)) {
            // Not closed where it fails: a stream that failed throws the same exception once more.
            FSDataOutputStream out = files.create(path, (short) 3);
            out.write(name.getBytes(StandardCharsets.UTF_8));
            out.close();
            Set<Integer> ports = new TreeSet<>();
            for (BlockLocation block : files.getFileBlockLocations(path, 0, Long.MAX_VALUE)) {
                for (String node : block.getNames()) {
                    ports.add(Integer.valueOf(node.substring(node.lastIndexOf(':') + 1)));
                }
            }
            return ports;
        }
    }

    @Override
    public void close() {
        dataNodes.forEach(DataNode::shutdown);
        nameNode.stop();
    }
}
