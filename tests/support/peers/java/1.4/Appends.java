import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.deletionvectors.Bitmap64DeletionVector;
import org.apache.paimon.deletionvectors.BitmapDeletionVector;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.deletionvectors.append.BaseAppendDeleteFileMaintainer;
import org.apache.paimon.index.IndexFileMeta;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.FileKind;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.SpecialFields;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.utils.Pair;

/** Changes of append tables with Paimon 1.4, by the steps that the procedures and statements of its Spark connector take. */
public class Appends {
    /** Rewrites the small files of an append table without buckets. */
    public static JsonNode compact(FileStoreTable table) throws Exception {
        List<CommitMessage> messages = new ArrayList<>();
        BaseAppendFileStoreWrite write = (BaseAppendFileStoreWrite) (Object) table.store().newWrite("java-peer");
        write.withIOManager(JavaPeer.io);
        if (table.coreOptions().rowTrackingEnabled()) // as the engines do
            write.withWriteType(SpecialFields.rowTypeWithRowTracking(table.rowType()));
        for (AppendCompactTask task : new AppendCompactCoordinator(table, false).run())
            messages.add(task.doCompact(table, write));
        write.close();
        return commit(table, messages);
    }

    /** Deletes the given rows of an append table by deletion vectors, each wherever it stands. */
    public static JsonNode delete(FileStoreTable table, JsonNode rows) throws Exception {
        Set<String> unwanted = new HashSet<>();
        rows.forEach(row -> unwanted.add(row.toString()));
        Map<Pair<Object, Integer>, BaseAppendDeleteFileMaintainer> maintainers = new LinkedHashMap<>();
        for (Split split : table.newReadBuilder().newScan().plan().splits()) {
            DataSplit data = (DataSplit) split;
            BaseAppendDeleteFileMaintainer maintainer = maintainers.computeIfAbsent(
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

    static BaseAppendDeleteFileMaintainer maintainer(FileStoreTable table, DataSplit data) {
        var handler = table.store().newIndexFileHandler();
        var snapshot = table.snapshotManager().latestSnapshot();
        return table.bucketMode() == BucketMode.BUCKET_UNAWARE
                ? BaseAppendDeleteFileMaintainer.forUnawareAppend(handler, snapshot, data.partition())
                : BaseAppendDeleteFileMaintainer.forBucketedAppend(handler, snapshot, data.partition(), data.bucket());
    }

    /** A vector counts rows from the start of the file, so the file is read without the vector it has. */
    static DeletionVector positions(FileStoreTable table, DataSplit data, DataFileMeta file, Set<String> unwanted)
            throws Exception {
        DataSplit alone = DataSplit.builder().withSnapshot(data.snapshotId()).withPartition(data.partition())
                .withBucket(data.bucket()).withBucketPath(data.bucketPath()).withDataFiles(Arrays.asList(file))
                .rawConvertible(true).build();
        boolean wide = table.coreOptions().deletionVectorBitmap64();
        DeletionVector vector = wide ? new Bitmap64DeletionVector() : new BitmapDeletionVector();
        long[] position = {0};
        try (RecordReader<InternalRow> reader = table.newReadBuilder().newRead().createReader(alone)) {
            reader.forEachRemaining(row -> {
                if (unwanted.contains(JavaPeer.fields(row, table.rowType()).toString())) vector.delete(position[0]);
                position[0]++;
            });
        }
        return vector;
    }

    static CommitMessage message(BaseAppendDeleteFileMaintainer maintainer) {
        List<IndexFileMeta> added = new ArrayList<>(), deleted = new ArrayList<>();
        for (IndexManifestEntry entry : maintainer.persist())
            (entry.kind() == FileKind.ADD ? added : deleted).add(entry.indexFile());
        return new CommitMessageImpl(maintainer.getPartition(), maintainer.getBucket(), null,
                new DataIncrement(List.of(), List.of(), List.of(), added, deleted), CompactIncrement.emptyIncrement());
    }

    static JsonNode commit(FileStoreTable table, List<CommitMessage> messages) throws Exception {
        try (TableCommitImpl commit = table.newCommit("java-peer")) {
            commit.commit(0, messages);
        }
        return JavaPeer.NODES.nullNode();
    }
}
