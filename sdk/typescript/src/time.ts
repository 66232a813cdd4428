import { invalid } from "./errors.js";

/** A duration: milliseconds, or an ISO 8601 duration such as `"PT30M"`. */
export type Duration = number | string;

/**
 * When a message is due: an instant (a Date, or RFC 3339 text such as `"2031-01-31T09:00:00Z"`), or a delay from now by
 * Redis' clock (milliseconds, or an ISO 8601 duration such as `"PT30M"`). It counts in whole milliseconds, rounded up.
 */
export type Due = Date | Duration;

/** A due time as milliseconds: a delay, or an instant since 1970. */
export interface DueMs {
  readonly isDelay: boolean;
  readonly ms: number;
}

const isoDuration =
  /^P(?=.)(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?(?:T(?=.)(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?$/;
const rfc3339 = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;
const unitsMs = [7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000];
const durationRule = 'milliseconds, or an ISO 8601 duration of weeks, days, hours, minutes and seconds as "PT30M"';

/** Rounds up to whole milliseconds, but not what is only an error of a floating point number. */
const ceilMs = (ms: number): number => Math.ceil(Number(ms.toFixed(6)));

/** Reads a duration of 0 or more as milliseconds. */
export function durationMs(field: string, value: Duration): number {
  let ms = Number.NaN;
  if (typeof value === "number") {
    ms = value;
  } else if (typeof value === "string") {
    const parts = isoDuration.exec(value);
    ms = parts === null ? Number.NaN : unitsMs.reduce((sum, unit, i) => sum + Number(parts[i + 1] ?? 0) * unit, 0);
  }
  if (!(ms >= 0 && ms <= Number.MAX_SAFE_INTEGER)) {
    throw invalid(field, value, durationRule);
  }
  return ceilMs(ms);
}

/** Reads a due time. */
export function dueMs(due: Due): DueMs {
  if (due instanceof Date) {
    if (Number.isNaN(due.getTime())) {
      throw invalid("due", due, "a valid Date");
    }
    return { isDelay: false, ms: due.getTime() };
  }
  const at = typeof due === "string" ? rfc3339.exec(due) : null;
  if (at !== null) {
    const [, seconds, fraction = "", zone] = at;
    const ms = Date.parse(`${seconds}${zone}`.toUpperCase());
    if (Number.isNaN(ms)) {
      throw invalid("due", due, "a time that there is");
    }
    return { isDelay: false, ms: ms + ceilMs(Number(`0${fraction}`) * 1000) };
  }
  if (due === undefined || due === null) {
    throw invalid("due", due, "give a Date, milliseconds, or ISO 8601 text");
  }
  return { isDelay: true, ms: durationMs("due", due) };
}

/** An instant as the API has it. */
export const stamp = (ms: number): string => new Date(ms).toISOString();

/** Reads an instant of the API. */
export const instant = (text: unknown): Date | undefined =>
  typeof text === "string" && text !== "" ? new Date(text) : undefined;

/** A duration as the API has it. */
export const wireDuration = (field: string, value: Duration): string => `${durationMs(field, value)}ms`;
