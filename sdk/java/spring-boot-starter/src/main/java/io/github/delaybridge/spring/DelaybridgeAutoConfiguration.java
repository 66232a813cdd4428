package io.github.delaybridge.spring;

import io.github.delaybridge.Client;
import io.github.delaybridge.InvalidException;
import javax.sql.DataSource;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jdbc.datasource.DataSourceUtils;

/**
 * Makes a {@link Client} where {@code delaybridge.servers} is set, and a {@link TransactionalOutbox} where there is a
 * DataSource. Beans of your own take their place.
 */
@AutoConfiguration(afterName = "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration")
@ConditionalOnProperty("delaybridge.queue")
@EnableConfigurationProperties(DelaybridgeProperties.class)
public class DelaybridgeAutoConfiguration {
    /** The client of {@code delaybridge.queue}. */
    @Bean
    @ConditionalOnMissingBean
    @ConditionalOnServers
    Client delaybridgeClient(DelaybridgeProperties p) {
        Client.Builder b = Client.builder().servers(p.servers()).queue(p.queue());
        b.timeout(p.timeout()).attemptTimeout(p.attemptTimeout()).caFile(p.caFile());
        b.certificate(p.certFile(), p.keyFile());
        if (p.token() != null && p.tokenFile() != null) {
            throw new InvalidException("delaybridge.token-file", "is there beside delaybridge.token: give one of them");
        }
        if (p.token() != null) {
            b.token(p.token());
        }
        return p.tokenFile() == null ? b.build() : b.tokenFile(p.tokenFile()).build();
    }

    /** The outbox, where spring-jdbc and a DataSource are there. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(DataSourceUtils.class)
    static class OutboxConfiguration {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnSingleCandidate(DataSource.class)
        TransactionalOutbox delaybridgeOutbox(DataSource database, DelaybridgeProperties p) {
            return new TransactionalOutbox(database, p.queue(), p.outboxTable());
        }
    }
}
