import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * Two NameNodes, of which one is active, and one DataNode in a folder, which is formatted if it is
 * new. The ports of the NameNodes are arguments; settings like name=value follow them. Prints a line
 * when it is ready. Then each line of the standard input is a command, which is answered with a line.
 */
public class HdfsServer {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = new Configuration();
    settings.set("dfs.replication", "1");
    settings.set("dfs.permissions.enabled", "true");
    // The standby takes over without waiting for the next reading of the edits.
    settings.set("dfs.ha.tail-edits.period", "1");
    for (String argument : Arrays.asList(arguments).subList(4, arguments.length)) {
      String[] parts = argument.split("=", 2);
      settings.set(parts[0], parts[1]);
    }
    UserGroupInformation.setConfiguration(settings);
    if (UserGroupInformation.isSecurityEnabled()) {
      UserGroupInformation.loginUserFromKeytab(
          settings.get("dfs.namenode.kerberos.principal"), settings.get("dfs.namenode.keytab.file"));
    }
    MiniDFSNNTopology topology =
        new MiniDFSNNTopology()
            .addNameservice(
                new MiniDFSNNTopology.NSConf(arguments[1])
                    .addNN(configure("nn1", arguments[2]))
                    .addNN(configure("nn2", arguments[3])));
    File folder = new File(arguments[0]);
    boolean isNew = !folder.exists();
    if (!isNew) {
      settings.set(
          "dfs.namenode.shared.edits.dir",
          new File(folder, "shared-edits-0-through-1").toURI().toString());
    }
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(settings, folder)
            .nnTopology(topology)
            .format(isNew)
            .manageNameDfsSharedDirs(isNew) // it would delete the edits
            // A standby stays in safe mode until the last edits of a killed NameNode are recovered.
            .waitSafeMode(isNew)
            .numDataNodes(1)
            .build();
    cluster.waitActive();
    cluster.transitionToActive(0);
    answer("ready");
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      int node = Integer.parseInt(words[1]);
      switch (words[0]) {
        case "standby" -> cluster.transitionToStandby(node);
        case "active" -> cluster.transitionToActive(node);
        case "safe" -> setSafeMode(cluster, node, SafeModeAction.SAFEMODE_ENTER);
        case "unsafe" -> setSafeMode(cluster, node, SafeModeAction.SAFEMODE_LEAVE);
        case "token" -> writeToken(cluster, node, new Path(words[2]));
        default -> throw new IllegalArgumentException(line);
      }
      answer("done");
    }
    System.exit(0);
  }

  private static MiniDFSNNTopology.NNConf configure(String name, String port) {
    return new MiniDFSNNTopology.NNConf(name).setIpcPort(Integer.parseInt(port));
  }

  private static void setSafeMode(MiniDFSCluster cluster, int node, SafeModeAction action)
      throws Exception {
    cluster.getNameNodeRpc(node).setSafeMode(action, false);
  }

  /** Writes a file like that which YARN gives to the tasks of an application. */
  private static void writeToken(MiniDFSCluster cluster, int node, Path file) throws Exception {
    Credentials credentials = new Credentials();
    cluster.getFileSystem(node).addDelegationTokens("tests", credentials);
    credentials.writeTokenStorageFile(file, new Configuration());
  }

  private static void answer(String text) {
    System.out.println(text);
    System.out.flush();
  }
}
