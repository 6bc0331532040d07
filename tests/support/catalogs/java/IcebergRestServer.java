package org.apache.iceberg.rest;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.util.Pair;

/**
 * Serves Iceberg's REST protocol with the adapter of Iceberg's tests and a JDBC catalog, until its
 * input ends. The arguments are a port (0 for any), the file of a SQLite database, a warehouse and a
 * token. The package gives access to the adapter's types.
 */
public class IcebergRestServer {
    static final ObjectMapper JSON = RESTObjectMapper.mapper();

    public static void main(String[] words) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        JdbcCatalog catalog = new JdbcCatalog();
        Map<String, String> options = new HashMap<>();
        options.put("uri", "jdbc:sqlite:" + words[1]);
        options.put("warehouse", words[2]);
        options.put("jdbc.schema-version", "V1");
        catalog.setConf(new org.apache.hadoop.conf.Configuration());
        catalog.initialize("served", options);
        RESTCatalogAdapter adapter = new RESTCatalogAdapter(catalog);
        InetSocketAddress address =
                new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(words[0]));
        HttpServer server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> answer(adapter, exchange, words[3]));
        server.start();
        answers.println(server.getAddress().getPort());
        while (System.in.read() >= 0) {}
        Runtime.getRuntime().halt(0);
    }

    static void answer(RESTCatalogAdapter adapter, HttpExchange exchange, String token) throws IOException {
        try {
            if (!("Bearer " + token).equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
                send(exchange, 401, error(401, "NotAuthorizedException", "wrong token"));
                return;
            }
            HTTPRequest.HTTPMethod method = HTTPRequest.HTTPMethod.valueOf(exchange.getRequestMethod());
            String path = exchange.getRequestURI().getRawPath().substring(1);
            Pair<Route, Map<String, String>> found = Route.from(method, path);
            if (found == null) {
                send(exchange, 400, error(400, "BadRequestException", "no route for " + method + " " + path));
                return;
            }
            byte[] body = exchange.getRequestBody().readAllBytes();
            Class<? extends RESTRequest> type = found.first().requestClass();
            HTTPRequest request =
                    ImmutableHTTPRequest.builder()
                            .baseUri(java.net.URI.create("http://127.0.0.1"))
                            .method(method)
                            .path(path)
                            .queryParameters(parameters(exchange.getRequestURI().getRawQuery()))
                            .headers(HTTPHeaders.EMPTY)
                            .body(type == null ? null : JSON.readValue(body, type))
                            .build();
            ErrorResponse[] failed = new ErrorResponse[1];
            Object answer = null;
            try {
                answer =
                        adapter.execute(
                                request,
                                found.first().responseClass(),
                                error -> failed[0] = error,
                                headers -> {});
            } catch (org.apache.iceberg.exceptions.RESTException error) {
                if (failed[0] == null) throw error;
            }
            if (failed[0] != null) send(exchange, failed[0].code(), failed[0]);
            else if (answer == null) send(exchange, 204, null);
            else send(exchange, 200, answer);
        } catch (Throwable error) {
            error.printStackTrace();
            send(exchange, 500, error(500, error.getClass().getSimpleName(), String.valueOf(error.getMessage())));
        } finally {
            exchange.close();
        }
    }

    static Map<String, String> parameters(String query) {
        Map<String, String> values = new HashMap<>();
        if (query == null) return values;
        for (String item : query.split("&")) {
            String[] pair = item.split("=", 2);
            values.put(pair[0], URLDecoder.decode(pair.length == 1 ? "" : pair[1], StandardCharsets.UTF_8));
        }
        return values;
    }

    static ErrorResponse error(int code, String type, String message) {
        return ErrorResponse.builder().responseCode(code).withType(type).withMessage(message).build();
    }

    static void send(HttpExchange exchange, int code, Object body) throws IOException {
        boolean empty = body == null || exchange.getRequestMethod().equals("HEAD");
        byte[] bytes = empty ? new byte[0] : JSON.writeValueAsBytes(body);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(code, bytes.length == 0 ? -1 : bytes.length);
        if (bytes.length > 0) exchange.getResponseBody().write(bytes);
    }
}
