/**
 * Schedules messages that delaybridge publishes to a broker when they are due, unless they are cancelled.
 *
 * @packageDocumentation
 */
export { Batcher, type BatcherOptions } from "./batcher.js";
export * from "./client.js";
export type { Clock } from "./clock.js";
export {
  type Code,
  DelaybridgeError,
  DuplicateError,
  type ErrorDetails,
  FailedError,
  ForbiddenError,
  FullError,
  InvalidError,
  KeyInUseError,
  KeyReusedError,
  NoLayoutError,
  NotFoundError,
  RateLimitedError,
  ReadOnlyError,
  TooLateError,
  UnauthorizedError,
  UnavailableError,
  UnknownError,
} from "./errors.js";
export type { Conflict, Late, Message, Ref } from "./message.js";
export type { Due, Duration } from "./time.js";
