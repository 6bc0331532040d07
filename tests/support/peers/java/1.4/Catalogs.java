import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.paimon.catalog.AbstractCatalog;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogLock;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.catalog.PropertyChange;
import org.apache.paimon.partition.Partition;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.TableSnapshot;
import org.apache.paimon.utils.JsonSerdeUtil;

/** What catalogs of Paimon 0.9 call differently, or do not have. */
public class Catalogs {
    static Map<String, String> options(Catalog catalog, String database) throws Exception {
        return catalog.getDatabase(database).options();
    }

    static void alterDatabase(Catalog catalog, String database, Map<String, String> options, List<String> removed)
            throws Exception {
        List<PropertyChange> changes = new ArrayList<>();
        options.forEach((key, value) -> changes.add(PropertyChange.setProperty(key, value)));
        removed.forEach(key -> changes.add(PropertyChange.removeProperty(key)));
        catalog.alterDatabase(database, changes, false);
    }

    static JsonNode partitions(Catalog catalog, Identifier table) throws Exception {
        ArrayNode partitions = JavaPeer.NODES.arrayNode();
        for (Partition partition : catalog.listPartitions(table))
            partitions.add(JavaPeer.JSON.readTree(JsonSerdeUtil.toJson(partition)));
        return partitions;
    }

    static void markDone(Catalog catalog, Identifier table, List<Map<String, String>> partitions) throws Exception {
        catalog.markDonePartitions(table, partitions);
    }

    /** Returns the newest snapshot as the catalog has it, which reads no files. */
    static JsonNode snapshot(Catalog catalog, Identifier table) throws Exception {
        Optional<TableSnapshot> snapshot = catalog.loadSnapshot(table);
        if (!snapshot.isPresent()) return JavaPeer.NODES.nullNode();
        return JavaPeer.JSON.readTree(JsonSerdeUtil.toJson(snapshot.get()));
    }

    static String uuid(Table table) {
        return table.uuid();
    }

    static CatalogLock lock(Catalog catalog) {
        AbstractCatalog locked = (AbstractCatalog) catalog;
        return locked.lockFactory().get().createLock(locked.lockContext().get());
    }
}
