import { el } from './dom.js';
import { away, clock } from './format.js';

// when shows an instant by the reader's clock and how far away it is; the tooltip has
// it to the millisecond, in UTC.
export function when(time) {
  if (!time) return '–';
  return el('time', { datetime: time, title: time }, clock(time), ' ', el('small', null, away(time)));
}
