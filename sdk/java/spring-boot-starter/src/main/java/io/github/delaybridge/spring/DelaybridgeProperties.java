package io.github.delaybridge.spring;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * What the application's configuration says.
 *
 * @param servers the bridges' addresses, as https://bridge-1:8080; without them there is no Client
 * @param queue the queue of the Client and of the outbox
 * @param token the bearer token
 * @param tokenFile a file with the bearer token, which is read again after it was changed
 * @param timeout for a call with all its repetitions
 * @param attemptTimeout for each request of a call
 * @param caFile the roots of the bridges' certificates in PEM
 * @param certFile the client's own certificate in PEM
 * @param keyFile its key in PEM (PKCS 8)
 * @param outboxTable the outbox' table, as in the bridge's configuration
 */
@ConfigurationProperties("delaybridge")
public record DelaybridgeProperties(
        @DefaultValue List<String> servers,
        String queue,
        String token,
        Path tokenFile,
        @DefaultValue("30s") Duration timeout,
        @DefaultValue("5s") Duration attemptTimeout,
        Path caFile,
        Path certFile,
        Path keyFile,
        @DefaultValue("delay_outbox") String outboxTable) {}
