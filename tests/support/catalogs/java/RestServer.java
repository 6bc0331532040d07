import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import javax.net.ServerSocketFactory;
import okhttp3.mockwebserver.Dispatcher;
import okhttp3.mockwebserver.MockResponse;
import okhttp3.mockwebserver.MockWebServer;
import okhttp3.mockwebserver.RecordedRequest;
import org.apache.paimon.catalog.AbstractCatalog;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.catalog.TableMetadata;
import org.apache.paimon.rest.RESTApi;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.RESTToken;
import org.apache.paimon.rest.auth.AuthProvider;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.auth.DLFDefaultSigner;
import org.apache.paimon.rest.auth.DLFOpenApiSigner;
import org.apache.paimon.rest.auth.DLFRequestSigner;
import org.apache.paimon.rest.auth.DLFToken;
import org.apache.paimon.rest.auth.RESTAuthParameter;
import org.apache.paimon.rest.requests.RenameTableRequest;
import org.apache.paimon.rest.responses.ConfigResponse;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Runs REST servers of Paimon's tests, one after the other, until its input ends. Commands and
 * answers are lines of JSON, as in `support/peers/protocol.py`.
 */
public class RestServer {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] words) throws Exception {
        // Output of libraries is redirected to stderr.
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        RESTCatalogServer[] server = new RESTCatalogServer[1];
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode command = JSON.readTree(line);
                String what = command.get("do").asText();
                if (what.equals("start")) server[0] = start(command);
                else if (what.equals("stop")) server[0].shutdown();
                else run(server[0], command);
                answer.put("ok", server[0].getUrl());
            } catch (Throwable error) {
                answer.put("error", error.toString());
            }
            answers.println("\u0001" + JSON.writeValueAsString(answer));
        }
        // Threads of open connections would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    static RESTCatalogServer start(JsonNode command) throws Exception {
        ConfigResponse config = RESTApi.fromJson(command.get("config").toString(), ConfigResponse.class);
        RESTCatalogServer server =
                new Server(text(command, "folder"), provider(command.get("auth")), config, text(command, "warehouse"));
        web(server).setServerSocketFactory(new SocketsWithoutDelay());
        server.start();
        return server;
    }

    static MockWebServer web(RESTCatalogServer server) throws Exception {
        Field field = RESTCatalogServer.class.getDeclaredField("server");
        field.setAccessible(true);
        return (MockWebServer) field.get(server);
    }

    /** The web server writes head and body of an answer apart, and would wait 40 ms in between. */
    static class SocketsWithoutDelay extends ServerSocketFactory {
        @Override
        public ServerSocket createServerSocket() throws IOException {
            return new ServerSocket() {
                @Override
                public Socket accept() throws IOException {
                    Socket socket = super.accept();
                    socket.setTcpNoDelay(true);
                    return socket;
                }
            };
        }

        @Override
        public ServerSocket createServerSocket(int port) {
            throw new UnsupportedOperationException();
        }

        @Override
        public ServerSocket createServerSocket(int port, int backlog) {
            throw new UnsupportedOperationException();
        }

        @Override
        public ServerSocket createServerSocket(int port, int backlog, InetAddress address) {
            throw new UnsupportedOperationException();
        }
    }

    static void run(RESTCatalogServer server, JsonNode command) {
        switch (command.get("do").asText()) {
            case "forbid_database":
                server.addNoPermissionDatabase(text(command, "database"));
                break;
            case "forbid_table":
                server.addNoPermissionTable(table(command));
                break;
            case "set_data_token":
                Map<String, String> token = new HashMap<>();
                command.get("token").fields().forEachRemaining(e -> token.put(e.getKey(), e.getValue().asText()));
                server.setDataToken(table(command), new RESTToken(token, command.get("expires_at_millis").asLong()));
                break;
            default:
                throw new IllegalArgumentException("cannot " + command.get("do").asText());
        }
    }

    static AuthProvider provider(JsonNode auth) {
        if (auth.has("token")) return new BearTokenAuthProvider(text(auth, "token"));
        DLFToken token =
                new DLFToken(
                        text(auth, "access_key_id"),
                        text(auth, "access_key_secret"),
                        auth.hasNonNull("security_token") ? text(auth, "security_token") : null,
                        null);
        boolean openApi = text(auth, "algorithm").equals("openapi");
        return new SignatureCheck(token, openApi ? new DLFOpenApiSigner() : new DLFDefaultSigner(text(auth, "region")));
    }

    static Identifier table(JsonNode command) {
        return Identifier.create(text(command, "database"), text(command, "table"));
    }

    static String text(JsonNode node, String name) {
        return node.get(name).asText();
    }

    /**
     * The server with corrections. As published, it handles requests in parallel with maps that are
     * not thread safe, keeps tables of a dropped database, loses the snapshots of renamed tables and
     * their location, lists a table once more for each of its branches, and does not answer at all
     * after an exception.
     */
    static class Server extends RESTCatalogServer {
        private static final String TABLES = "tableMetadataStore";
        private static final String SNAPSHOTS = "tableWithSnapshotId2SnapshotStore";
        private static final List<String> STORES =
                Arrays.asList(TABLES, SNAPSHOTS, "tableLatestSnapshotStore", "tablePartitionsStore");

        Server(String folder, AuthProvider provider, ConfigResponse config, String warehouse) {
            super(folder, provider, config, warehouse);
        }

        @Override
        public Dispatcher initDispatcher(AuthProvider provider) {
            Dispatcher dispatcher = super.initDispatcher(provider);
            return new Dispatcher() {
                @Override
                public synchronized MockResponse dispatch(RecordedRequest request) throws InterruptedException {
                    String method = request.getMethod();
                    String path = request.getPath().split("\\?")[0];
                    String body = request.getBody().clone().readUtf8();
                    try {
                        MockResponse response = dispatcher.dispatch(request);
                        if (!response.getStatus().contains(" 200 ")) return response;
                        if (method.equals("POST") && path.endsWith("/tables/rename")) rename(body);
                        if (method.equals("DELETE")) removeParts();
                        if (method.equals("GET") && path.endsWith("/tables")) removeDuplicates(response);
                        return response;
                    } catch (Exception error) {
                        return new MockResponse().setResponseCode(500).setBody(error.toString());
                    }
                }
            };
        }

        private void rename(String body) throws Exception {
            RenameTableRequest request = RESTApi.fromJson(body, RenameTableRequest.class);
            Identifier from = request.getSource(), to = request.getDestination();
            for (String name : STORES) {
                Map<String, Object> store = store(name);
                for (String key : new ArrayList<>(store.keySet())) {
                    if (!tableOf(name, key).equals(from.getFullName())) continue;
                    store.put(to.getFullName() + key.substring(from.getFullName().length()), store.remove(key));
                }
            }
            String location = ((AbstractCatalog) field("catalog")).getTableLocation(to).toString();
            Map<String, Object> tables = store(TABLES);
            for (String key : new ArrayList<>(tables.keySet())) {
                TableMetadata table = (TableMetadata) tables.get(key);
                if (!tableOf(TABLES, key).equals(to.getFullName()) || table.isExternal()) continue;
                Map<String, String> options = new HashMap<>(table.schema().options());
                options.put("path", location);
                tables.put(key, new TableMetadata(table.schema().copy(options), false, table.uuid()));
            }
        }

        private void removeParts() throws Exception {
            Set<String> databases = store("databaseStore").keySet();
            Set<String> tables = new HashSet<>(store(TABLES).keySet());
            tables.removeIf(key -> !databases.contains(key.substring(0, key.indexOf('.'))));
            for (String name : STORES) store(name).keySet().removeIf(key -> !tables.contains(tableOf(name, key)));
        }

        private static void removeDuplicates(MockResponse response) throws Exception {
            JsonNode answer = JSON.readTree(response.getBody().readUtf8());
            if (answer.path("tables").path(0).isTextual()) {
                Set<JsonNode> names = new LinkedHashSet<>();
                answer.get("tables").forEach(names::add);
                ((ObjectNode) answer).putArray("tables").addAll(names);
            }
            response.setBody(JSON.writeValueAsString(answer));
        }

        /** Returns the table of a key: `db.t` or `db.t$branch_b`, or these with `-` and a snapshot. */
        private static String tableOf(String store, String key) {
            String object = store.equals(SNAPSHOTS) ? key.substring(0, key.lastIndexOf('-')) : key;
            return object.split("\\$")[0];
        }

        @SuppressWarnings("unchecked")
        private Map<String, Object> store(String name) throws Exception {
            return (Map<String, Object>) field(name);
        }

        private Object field(String name) throws Exception {
            Field field = RESTCatalogServer.class.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(this);
        }
    }

    /** Signs a request with the date and nonce of its headers; the server compares the results. */
    static class SignatureCheck implements AuthProvider {
        private final DLFToken token;
        private final DLFRequestSigner signer;

        SignatureCheck(DLFToken token, DLFRequestSigner signer) {
            this.token = token;
            this.signer = signer;
        }

        @Override
        public Map<String, String> mergeAuthHeader(Map<String, String> received, RESTAuthParameter request) {
            Map<String, String> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
            headers.putAll(received);
            try {
                String host = headers.getOrDefault("Host", "");
                headers.put("Authorization", signer.authorization(request, token, host, headers));
            } catch (Exception error) {
                headers.put("Authorization", "cannot be computed: " + error);
            }
            return headers;
        }
    }
}
