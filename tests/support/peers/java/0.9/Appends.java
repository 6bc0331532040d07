import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.paimon.append.UnawareAppendCompactionTask;
import org.apache.paimon.append.UnawareAppendTableCompactionCoordinator;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.deletionvectors.BitmapDeletionVector;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.deletionvectors.append.AppendDeletionFileMaintainer;
import org.apache.paimon.index.IndexFileMeta;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.io.IndexIncrement;
import org.apache.paimon.manifest.FileKind;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.operation.AppendOnlyFileStoreWrite;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.utils.Pair;

/** Changes of append tables with Paimon 0.9. */
public class Appends {
    /** Rewrites the small files of an append table without buckets. */
    public static JsonNode compact(FileStoreTable table) throws Exception {
        List<CommitMessage> messages = new ArrayList<>();
        AppendOnlyFileStoreWrite write = (AppendOnlyFileStoreWrite) (Object) table.store().newWrite("java-peer");
        write.withIOManager(JavaPeer.io);
        for (UnawareAppendCompactionTask task : new UnawareAppendTableCompactionCoordinator(table, false).run())
            messages.add(task.doCompact(table, write));
        write.close();
        return commit(table, messages);
    }

    /** Deletes the given rows of an append table by deletion vectors, each wherever it stands. */
    public static JsonNode delete(FileStoreTable table, JsonNode rows) throws Exception {
        Set<String> unwanted = new HashSet<>();
        rows.forEach(row -> unwanted.add(row.toString()));
        Map<Pair<Object, Integer>, AppendDeletionFileMaintainer> maintainers = new LinkedHashMap<>();
        for (Split split : table.newReadBuilder().newScan().plan().splits()) {
            DataSplit data = (DataSplit) split;
            AppendDeletionFileMaintainer maintainer = maintainers.computeIfAbsent(
                    Pair.of(data.partition().copy(), data.bucket()), key -> maintainer(table, data));
            for (DataFileMeta file : data.dataFiles()) {
                DeletionVector vector = positions(table, data, file, unwanted);
                if (!vector.isEmpty()) maintainer.notifyNewDeletionVector(file.fileName(), vector);
            }
        }
        List<CommitMessage> messages = new ArrayList<>();
        maintainers.values().forEach(maintainer -> messages.add(message(maintainer)));
        return commit(table, messages);
    }

    static AppendDeletionFileMaintainer maintainer(FileStoreTable table, DataSplit data) {
        var handler = table.store().newIndexFileHandler();
        return table.bucketMode() == BucketMode.BUCKET_UNAWARE
                ? AppendDeletionFileMaintainer.forUnawareAppend(handler, data.snapshotId(), data.partition())
                : AppendDeletionFileMaintainer.forBucketedAppend(handler, data.snapshotId(), data.partition(), data.bucket());
    }

    /** A vector counts rows from the start of the file, so the file is read without the vector it has. */
    static DeletionVector positions(FileStoreTable table, DataSplit data, DataFileMeta file, Set<String> unwanted)
            throws Exception {
        DataSplit alone = DataSplit.builder().withSnapshot(data.snapshotId()).withPartition(data.partition())
                .withBucket(data.bucket()).withBucketPath(data.bucketPath()).withDataFiles(Arrays.asList(file))
                .rawConvertible(true).build();
        DeletionVector vector = new BitmapDeletionVector();
        long[] position = {0};
        try (RecordReader<InternalRow> reader = table.newReadBuilder().newRead().createReader(alone)) {
            reader.forEachRemaining(row -> {
                if (unwanted.contains(JavaPeer.fields(row, table.rowType()).toString())) vector.delete(position[0]);
                position[0]++;
            });
        }
        return vector;
    }

    static CommitMessage message(AppendDeletionFileMaintainer maintainer) {
        List<IndexFileMeta> added = new ArrayList<>(), deleted = new ArrayList<>();
        for (IndexManifestEntry entry : maintainer.persist())
            (entry.kind() == FileKind.ADD ? added : deleted).add(entry.indexFile());
        return new CommitMessageImpl(maintainer.getPartition(), maintainer.getBucket(), DataIncrement.emptyIncrement(),
                CompactIncrement.emptyIncrement(), new IndexIncrement(added, deleted));
    }

    static JsonNode commit(FileStoreTable table, List<CommitMessage> messages) throws Exception {
        try (TableCommitImpl commit = table.newCommit("java-peer")) {
            commit.commit(0, messages);
        }
        return JavaPeer.NODES.nullNode();
    }
}
