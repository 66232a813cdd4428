/** What the artifacts of delaybridge share. It is not part of the API, and changes without notice. */
package io.github.delaybridge.internal;
