import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.paimon.KeyValue;
import org.apache.paimon.KeyValueFileStore;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.fileindex.FileIndexPredicate;
import org.apache.paimon.fs.Path;
import org.apache.paimon.index.IndexFileHandler;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataFilePathFactory;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.FileStoreTable;

/** What the checker needs and what differs between releases, with the classes of Paimon 0.9. */
class Internals {
    static Path path(DataFilePathFactory paths, DataFileMeta file) {
        return paths.toPath(file.fileName());
    }

    static Path extraPath(DataFilePathFactory paths, DataFileMeta file, String name) {
        return paths.toPath(name);
    }

    static Path path(IndexFileHandler handler, IndexManifestEntry entry) {
        return handler.filePath(entry.indexFile());
    }

    static Map<String, DeletionVector> deletionVectors(IndexFileHandler handler, IndexManifestEntry entry) {
        return handler.readAllDeletionVectors(Collections.singletonList(entry.indexFile()));
    }

    static List<Integer> hashes(IndexFileHandler handler, IndexManifestEntry entry) {
        return handler.readHashIndexList(entry.indexFile());
    }

    static RecordReader<KeyValue> read(KeyValueFileStore store, ManifestEntry entry) throws IOException {
        DataFileMeta file = entry.file();
        return store.newReaderFactoryBuilder().build(entry.partition(), entry.bucket(), DeletionVector.emptyFactory())
                .createRecordReader(file.schemaId(), file.fileName(), file.fileSize(), file.level());
    }

    static boolean mayMatch(FileIndexPredicate index, Predicate predicate) {
        return index.testPredicate(predicate);
    }

    static boolean isSortedByKey(FileStoreTable table, ManifestEntry entry) {
        return true;
    }

    static boolean levelsAreSorted(FileStoreTable table) {
        return true;
    }
}
