import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.DataType;

/** Values of types that only some releases have: none. */
class Types {
    static JsonNode json(Object value, DataType type) {
        throw new UnsupportedOperationException(type.toString());
    }

    static Object value(JsonNode node, DataType type) {
        throw new UnsupportedOperationException(type.toString());
    }
}
