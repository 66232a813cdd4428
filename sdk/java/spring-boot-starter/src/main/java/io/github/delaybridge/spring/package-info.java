/** A client and an outbox as beans of Spring Boot, by the properties {@code delaybridge.*}. */
package io.github.delaybridge.spring;
