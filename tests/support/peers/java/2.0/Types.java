import org.apache.paimon.data.BinaryVector;
import org.apache.paimon.data.Blob;
import org.apache.paimon.data.InternalVector;
import org.apache.paimon.data.variant.GenericVariant;
import org.apache.paimon.data.variant.Variant;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.VectorType;

/** Values of the types that Paimon 2.0 has and 0.9 has not. */
class Types {
    static JsonNode json(Object value, DataType type) {
        switch (type.getTypeRoot()) {
            case BLOB: return JavaPeer.NODES.textNode(JavaPeer.hex(((Blob) value).toData()));
            case VARIANT: return JavaPeer.NODES.textNode(((Variant) value).toJson());
            case VECTOR: return JavaPeer.items((InternalVector) value, ((VectorType) type).getElementType());
            default: throw new UnsupportedOperationException(type.toString());
        }
    }

    static Object value(JsonNode node, DataType type) {
        switch (type.getTypeRoot()) {
            case BLOB: return Blob.fromData(JavaPeer.bytes(node.asText()));
            case VARIANT: return GenericVariant.fromJson(node.asText());
            case VECTOR: {
                float[] items = new float[node.size()];
                for (int at = 0; at < items.length; at++) items[at] = (float) node.get(at).asDouble();
                return BinaryVector.fromPrimitiveArray(items);
            }
            default: throw new UnsupportedOperationException(type.toString());
        }
    }
}
