import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.sql.DriverManager;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.api.ShowLocksRequest;
import org.apache.hadoop.hive.metastore.api.ThriftHiveMetastore;
import org.apache.hadoop.hive.metastore.api.UnlockRequest;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.metastore.txn.TxnStore;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;
import org.apache.hadoop.hive.shims.ShimLoader;
import org.apache.thrift.TBase;
import org.apache.thrift.TProcessor;
import org.apache.thrift.TSerializer;
import org.apache.thrift.protocol.TSimpleJSONProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TSSLTransportFactory;
import org.apache.thrift.transport.TServerSocket;

/**
 * Serves a Hive metastore of release 2.3 or 3.1 on a port of the loopback interface, and prints the
 * port. Its arguments are a port, or 0 for any, and the interval in which it removes expired locks,
 * or 0 for never. Its configuration is the hive-site.xml on the class path.
 *
 * <p>Each line of standard input is a command: `stored` prints one line with everything that the
 * metastore stores, as JSON; `clear` deletes it and `expire` removes all locks as if their time had
 * passed, and both print an empty line. The server ends when standard input ends, so it never
 * outlives its parent.
 *
 * <p>Hive's own main class listens on all interfaces, and it creates the tables of locks only with
 * `hive.in.test`; but with that option it refuses the locks of Paimon, which have no operation type.
 */
public class MetastoreServer {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        // Only a crash of the machine loses what was not synced.
        System.setProperty("derby.system.durability", "test");
        int port = Integer.parseInt(arguments[0]);
        long reaperMillis = Long.parseLong(arguments[1]);

        Object conf = configuration();
        // The working directory has the database if the server is started again.
        if (!new File("derby").exists()) call(TxnDbUtil.class, "prepDb", conf);
        Object local = handler(conf);
        ThriftHiveMetastore.Iface handler = (ThriftHiveMetastore.Iface) call(RetryingHMSHandler.class, "getProxy", conf, local, false);
        TxnStore store = (TxnStore) call(TxnUtils.class, "getTxnStore", conf);
        if (reaperMillis > 0) {
            Executors.newSingleThreadScheduledExecutor()
                    .scheduleWithFixedDelay(store::performTimeOuts, reaperMillis, reaperMillis, TimeUnit.MILLISECONDS);
        }
        TServerSocket socket = listen((Configuration) conf, port);
        TThreadPoolServer.Args serverArguments = new TThreadPoolServer.Args(socket);
        TProcessor processor = new ThriftHiveMetastore.Processor<>(handler);
        serverArguments.processor(secure((Configuration) conf, processor, serverArguments));
        Thread server = new Thread(() -> new TThreadPoolServer(serverArguments).serve());
        server.setDaemon(true);
        server.start();
        answers.println(socket.getServerSocket().getLocalPort());
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; )
            answers.println(switch (line) {
                case "clear" -> clear(handler);
                case "expire" -> expire((Configuration) conf, store);
                default -> stored(handler);
            });
        Runtime.getRuntime().halt(0);
    }

    static Configuration configuration() throws Exception {
        try {
            return (Configuration) call(Class.forName("org.apache.hadoop.hive.metastore.conf.MetastoreConf"), "newMetastoreConf");
        } catch (ClassNotFoundException release2) {
            return (Configuration) Class.forName("org.apache.hadoop.hive.conf.HiveConf").getConstructor().newInstance();
        }
    }

    /** Listen with TLS if the configuration demands it. */
    static TServerSocket listen(Configuration conf, int port) throws Exception {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        if (!conf.getBoolean("hive.metastore.use.SSL", false)) return new TServerSocket(new InetSocketAddress(loopback, port));
        var certificate = new TSSLTransportFactory.TSSLTransportParameters();
        certificate.setKeyStore(
                conf.get("hive.metastore.keystore.path"), conf.get("hive.metastore.keystore.password"), null, "PKCS12");
        return TSSLTransportFactory.getServerSocket(port, 0, loopback, certificate);
    }

    /** Return the processor behind Kerberos if the configuration demands it. */
    static TProcessor secure(Configuration conf, TProcessor processor, TThreadPoolServer.Args arguments) throws Exception {
        if (!conf.getBoolean("hive.metastore.sasl.enabled", false)) return processor;
        var bridge = ShimLoader.getHadoopThriftAuthBridge();
        var server = bridge.createServer(
                conf.get("hive.metastore.kerberos.keytab.file"), conf.get("hive.metastore.kerberos.principal"));
        arguments.transportFactory(server.createTransportFactory(bridge.getHadoopSaslProperties(conf)));
        return server.wrapProcessor(processor);
    }

    static Object handler(Object conf) throws Exception {
        for (var constructor : HiveMetaStore.HMSHandler.class.getConstructors())
            if (constructor.getParameterCount() == 3) return constructor.newInstance("metastore", conf, false);
        throw new NoSuchMethodException("HMSHandler");
    }

    /** Call a static method; the releases have other types of configurations. */
    static Object call(Class<?> type, String name, Object... arguments) throws Exception {
        for (Method method : type.getMethods())
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length)
                return method.invoke(null, arguments);
        throw new NoSuchMethodException(type + "." + name);
    }

    static String stored(ThriftHiveMetastore.Iface handler) throws Exception {
        List<String> databases = new ArrayList<>(), tables = new ArrayList<>(), partitions = new ArrayList<>();
        for (String database : handler.get_all_databases()) {
            databases.add(json(handler.get_database(database)));
            for (String table : handler.get_all_tables(database)) {
                tables.add(json(handler.get_table(database, table)));
                for (var partition : handler.get_partitions(database, table, (short) -1)) partitions.add(json(partition));
            }
        }
        List<String> locks = new ArrayList<>();
        for (var lock : handler.show_locks(new ShowLocksRequest()).getLocks()) locks.add(json(lock));
        return "{\"databases\": " + databases + ", \"tables\": " + tables
                + ", \"partitions\": " + partitions + ", \"locks\": " + locks + "}";
    }

    static String clear(ThriftHiveMetastore.Iface handler) throws Exception {
        for (String database : handler.get_all_databases())
            if (!database.equals("default")) handler.drop_database(database, true, true);
        for (var lock : handler.show_locks(new ShowLocksRequest()).getLocks())
            handler.unlock(new UnlockRequest(lock.getLockid()));
        return "";
    }

    static String expire(Configuration conf, TxnStore store) throws Exception {
        try (var connection = DriverManager.getConnection(conf.get("javax.jdo.option.ConnectionURL"));
                var statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE HIVE_LOCKS SET HL_LAST_HEARTBEAT = 1");
        }
        store.performTimeOuts();
        return "";
    }

    static String json(TBase<?, ?> value) throws Exception {
        return new String(new TSerializer(new TSimpleJSONProtocol.Factory()).serialize(value), StandardCharsets.UTF_8);
    }
}
