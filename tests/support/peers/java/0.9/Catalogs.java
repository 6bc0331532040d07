import java.util.List;
import java.util.Map;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogLock;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.Table;

/** What catalogs of Paimon 0.9 call differently, and what they cannot do. */
public class Catalogs {
    static Map<String, String> options(Catalog catalog, String database) throws Exception {
        return catalog.loadDatabaseProperties(database);
    }

    static void alterDatabase(Catalog catalog, String database, Map<String, String> options, List<String> removed) {
        throw new UnsupportedOperationException("Paimon 0.9 cannot alter databases");
    }

    static JsonNode partitions(Catalog catalog, Identifier table) {
        throw new UnsupportedOperationException("catalogs of Paimon 0.9 cannot list partitions");
    }

    static void markDone(Catalog catalog, Identifier table, List<Map<String, String>> partitions) {
        throw new UnsupportedOperationException("catalogs of Paimon 0.9 cannot mark partitions as done");
    }

    static JsonNode snapshot(Catalog catalog, Identifier table) {
        throw new UnsupportedOperationException("catalogs of Paimon 0.9 load no snapshots");
    }

    static String uuid(Table table) {
        return null;
    }

    static CatalogLock lock(Catalog catalog) {
        return catalog.lockFactory().get().createLock(catalog.lockContext().get());
    }
}
