/** The codes of the API's problems. */
export type Code =
  | "invalid"
  | "unauthorized"
  | "forbidden"
  | "read_only"
  | "not_found"
  | "duplicate"
  | "too_late"
  | "key_in_use"
  | "key_reused"
  | "rate_limited"
  | "unavailable"
  | "no_layout"
  | "unknown"
  | "full"
  | "failed";

/** What is known of an error beside its code. */
export interface ErrorDetails {
  /** The HTTP status; absent if no server has made the error. */
  readonly status?: number;
  /** The field that is invalid. */
  readonly field?: string;
  /** The message's id. */
  readonly id?: string;
  /** When the message is due that has the identity. */
  readonly dueAt?: Date;
  /** The key of the call: with it you may make the call again, if its outcome is unknown. */
  readonly idempotencyKey?: string;
  /** What the bridge's log calls the request. */
  readonly requestId?: string;
  /** What has caused it: often the error of a connection. */
  readonly cause?: unknown;
}

/** An error of a call, with the API's code. Each code has a class; codes to come are {@link DelaybridgeError} itself. */
export class DelaybridgeError extends Error implements ErrorDetails {
  readonly code: Code;
  declare readonly status?: number;
  declare readonly field?: string;
  declare readonly id?: string;
  declare readonly dueAt?: Date;
  declare readonly idempotencyKey?: string;
  declare readonly requestId?: string;

  constructor(code: Code, message: string, { cause, ...details }: ErrorDetails = {}) {
    super(message, cause === undefined ? {} : { cause });
    this.code = code;
    Object.assign(this, details);
    this.name = new.target.name;
  }
}

/** Something is outside a limit, or not known; `field` names what. Nothing was done. */
export class InvalidError extends DelaybridgeError {}
/** There is no token, or it is not a known one. */
export class UnauthorizedError extends DelaybridgeError {}
/** The caller may not do this. */
export class ForbiddenError extends DelaybridgeError {}
/** Nobody may change anything at this bridge. */
export class ReadOnlyError extends DelaybridgeError {}
/** There is no such message (it was published, cancelled, or never scheduled) or queue. */
export class NotFoundError extends DelaybridgeError {}
/** A message of that identity exists. Nothing was done. */
export class DuplicateError extends DelaybridgeError {}
/** The message is being published right now. Nothing was done. */
export class TooLateError extends DelaybridgeError {}
/** Another request under the Idempotency-Key is under way. */
export class KeyInUseError extends DelaybridgeError {}
/** The Idempotency-Key was used for another request in the last 24 h. Nothing was done. */
export class KeyReusedError extends DelaybridgeError {}
/** More calls than the token may make, or more at once than there is room for. Nothing was done. */
export class RateLimitedError extends DelaybridgeError {}
/** No server was reached, or none reaches Redis. Nothing was done. */
export class UnavailableError extends DelaybridgeError {}
/** No bridge has made the queue yet. Nothing was done. */
export class NoLayoutError extends DelaybridgeError {}
/** It may have been done, or not: the answer was lost. Make the call again under `idempotencyKey`, or look with `get`. */
export class UnknownError extends DelaybridgeError {}
/** Redis is full, or the queue's budget is used up. Nothing was done. */
export class FullError extends DelaybridgeError {}
/** Anything else; the bridge's log has it. */
export class FailedError extends DelaybridgeError {}

const classes: Record<Code, typeof DelaybridgeError> = {
  invalid: InvalidError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  read_only: ReadOnlyError,
  not_found: NotFoundError,
  duplicate: DuplicateError,
  too_late: TooLateError,
  key_in_use: KeyInUseError,
  key_reused: KeyReusedError,
  rate_limited: RateLimitedError,
  unavailable: UnavailableError,
  no_layout: NoLayoutError,
  unknown: UnknownError,
  full: FullError,
  failed: FailedError,
};

/** Makes the error of a code. */
export function errorOf(code: Code, message: string, details: ErrorDetails = {}): DelaybridgeError {
  return new (classes[code] ?? DelaybridgeError)(code, message, details);
}

/** Makes the error of a field that is outside its limit. */
export function invalid(field: string, value: unknown, limit: string): InvalidError {
  const shown = typeof value === "string" ? JSON.stringify(value) : String(value);
  return new InvalidError("invalid", `${field} ${shown.length > 64 ? `${shown.slice(0, 64)}…` : shown}: ${limit}`, {
    field,
  });
}
