const whole = new Intl.NumberFormat('en');

export function count(n) {
  return n === undefined || n === null ? 'unknown' : whole.format(n);
}

export function rate(n) {
  if (n === undefined || n === null) return '–';
  return (n >= 100 ? whole.format(Math.round(n)) : n >= 10 ? n.toFixed(0) : n > 0 ? n.toFixed(1) : '0') + '/s';
}

export function bytes(n) {
  if (n === undefined || n === null) return '–';
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (n >= size) return `${(n / size).toFixed(1)} ${unit}`;
  }
  return `${Math.round(n)} B`;
}

// duration of seconds, in its two largest units.
export function duration(seconds) {
  const s = Math.abs(seconds);
  if (s < 0.0995) return `${(s * 1000).toFixed(s < 0.00995 ? 1 : 0)} ms`;
  if (s < 10) return `${s.toFixed(s < 1 ? 2 : 1)} s`;
  const parts = [];
  let rest = Math.round(s);
  for (const [unit, size] of [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]]) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n || parts.length) parts.push(n ? `${n} ${unit}` : '');
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(' ') || '0 s';
}

function pad(n, digits = 2) {
  return String(n).padStart(digits, '0');
}

const zoneKey = 'delaybridge.zone';
const here = Intl.DateTimeFormat().resolvedOptions().timeZone || 'local time';

// zone is whose clock times are shown and asked by: the reader's own, or UTC.
export const zone = () => (isUTC() ? 'UTC' : here);
export const isUTC = () => localStorage.getItem(zoneKey) === 'UTC';

export function switchZone() {
  if (isUTC()) localStorage.removeItem(zoneKey);
  else localStorage.setItem(zoneKey, 'UTC');
}

// instant is what a field for day and time says, in the zone shown; typed is the
// other way round.
export const instant = (text) => new Date(isUTC() ? `${text}Z` : text).toISOString();

export function typed(time) {
  return time ? clock(time).replace(' ', 'T') : '';
}

// clock is an instant in the zone shown, to the second.
export function clock(time, withDay = true) {
  const given = new Date(time);
  const t = isUTC() ? new Date(given.getTime() + given.getTimezoneOffset() * 60000) : given;
  const day = `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} `;
  return (withDay ? day : '') + `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
}

// minute is an instant to the minute, with its day where that is another one.
export function minute(time) {
  return clock(time, clock(time).slice(0, 10) !== clock(Date.now()).slice(0, 10)).slice(0, -3);
}

// away is how far an instant is from now, in words.
export function away(time) {
  const seconds = (new Date(time) - Date.now()) / 1000;
  if (Math.abs(seconds) < 1) return 'now';
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(seconds)} ago`;
}

// isFull says whether next to nothing is left: a queue stays a little below its budget, since
// what is refused is not measured.
export function isFull(room) {
  return room.used_bytes >= 0.99 * room.limit_bytes;
}

// room says how full something is, and when it will be, if it grows on.
export function room(r) {
  if (!r) return '';
  const full = isFull(r) ? ', full' : r.full_at ? `, full at ${minute(r.full_at)}, ${away(r.full_at)}` : '';
  return `${bytes(r.used_bytes)} of ${bytes(r.limit_bytes)}${full}`;
}
