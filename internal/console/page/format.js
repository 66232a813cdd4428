const whole = new Intl.NumberFormat('en');

export function count(n) {
  return n === undefined || n === null ? '–' : whole.format(n);
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

// clock is an instant in the reader's time zone, to the second.
export function clock(time, withDay = true) {
  const t = new Date(time);
  const day = `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} `;
  return (withDay ? day : '') + `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
}

// minute is an instant to the minute, with its day where that is another one.
export function minute(time) {
  return clock(time, new Date(time).toDateString() !== new Date().toDateString()).slice(0, -3);
}

// away is how far an instant is from now, in words.
export function away(time) {
  const seconds = (new Date(time) - Date.now()) / 1000;
  if (Math.abs(seconds) < 1) return 'now';
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(seconds)} ago`;
}
