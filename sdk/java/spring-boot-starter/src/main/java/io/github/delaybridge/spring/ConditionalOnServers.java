package io.github.delaybridge.spring;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.util.List;
import org.springframework.boot.autoconfigure.condition.ConditionMessage;
import org.springframework.boot.autoconfigure.condition.ConditionOutcome;
import org.springframework.boot.autoconfigure.condition.SpringBootCondition;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.context.annotation.ConditionContext;
import org.springframework.context.annotation.Conditional;
import org.springframework.core.type.AnnotatedTypeMetadata;

/** Where {@code delaybridge.servers} is set, as text or as a list. */
@Retention(RetentionPolicy.RUNTIME)
@Conditional(ConditionalOnServers.Condition.class)
@interface ConditionalOnServers {
    /** ConditionalOnProperty does not see a list. */
    final class Condition extends SpringBootCondition {
        private static final Bindable<List<String>> LIST = Bindable.listOf(String.class);

        @Override
        public ConditionOutcome getMatchOutcome(ConditionContext context, AnnotatedTypeMetadata metadata) {
            boolean isSet = Binder.get(context.getEnvironment())
                    .bind("delaybridge.servers", LIST)
                    .map(l -> !l.isEmpty())
                    .orElse(false);
            return new ConditionOutcome(isSet, ConditionMessage.of("delaybridge.servers is set: " + isSet));
        }
    }
}
