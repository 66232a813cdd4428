import { el } from './dom.js';
import { clock } from './format.js';

const height = 160;
const narrow = 640; // of a plot that has another one beside it
const wide = 1240;
const margin = { left: 64, right: 8, top: 8, bottom: 20 };

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function frame(width, label, maximum, unit, from, to) {
  const right = width - margin.right;
  const bottom = height - margin.bottom;
  const text = (x, y, anchor, content) => svg('text', { x, y, 'text-anchor': anchor }, content);
  const line = (y) => svg('line', { x1: margin.left, x2: right, y1: y, y2: y, class: 'grid' });
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label },
    line(margin.top), line((margin.top + bottom) / 2), line(bottom),
    text(margin.left - 6, margin.top + 10, 'end', unit(maximum)),
    text(margin.left - 6, (margin.top + bottom) / 2 + 4, 'end', unit(maximum / 2)),
    text(margin.left - 6, bottom, 'end', unit(0)),
    text(margin.left, height - 4, 'start', from),
    text(right, height - 4, 'end', to));
}

// round is the next round number above n, so that the axis does not jitter.
function round(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= n);
}

// lines draws points {at, …} over time; a series is {name, of(point)}, drawn as a line
// of its own and named below.
export function lines(title, points, series, unit) {
  const found = points.flatMap((p) => series.map((s) => s.of(p))).filter((v) => v !== undefined);
  if (points.length < 2 || !found.length) {
    return el('figure', null, el('figcaption', null, title), el('p.none', null, 'No figures yet.'));
  }
  const maximum = round(Math.max(...found));
  const from = points[0].at;
  const to = points[points.length - 1].at;
  const x = (at) => margin.left + (at - from) / (to - from || 1) * (narrow - margin.left - margin.right);
  const y = (v) => height - margin.bottom - v / maximum * (height - margin.bottom - margin.top);
  const last = (s) => points.findLast((p) => s.of(p) !== undefined);
  const label = `${title}: ${series.map((s) => `${s.name} ${last(s) ? unit(s.of(last(s))) : 'unknown'} now`).join(', ')}`;
  const drawn = frame(narrow, label, maximum, unit, clock(from, false), clock(to, false));
  series.forEach((s, i) => {
    for (const run of runs(points, s)) {
      const drawable = run.length > 1 ? run : [run[0], run[0]]; // One alone is a dot.
      drawn.append(svg('polyline', { class: `line series${i}`, points: drawable.map((p) => `${x(p.at).toFixed(1)},${y(s.of(p)).toFixed(1)}`).join(' ') }));
    }
  });
  const legend = series.map((s, i) => el(`span.key.series${i}`, null, s.name, ' ', el('b', null, last(s) ? unit(s.of(last(s))) : '–')));
  return el('figure', null, el('figcaption', null, title, ' ', legend), drawn);
}

const longestStep = 25000; // ms between points that belong together; longer where a point is the mean of more

// runs are the points of a series that follow one another: where none is known, no line
// says that there was something between.
function runs(points, s) {
  const all = [];
  let before = null;
  for (const p of points) {
    if (s.of(p) === undefined) continue;
    if (!before || p.at - before.at > Math.max(longestStep, 1.1 * (p.over || 0))) all.push([]);
    all.at(-1).push(p);
    before = p;
  }
  return all;
}

// bars draws steps {at, messages}; said(step) is the tooltip of one. Half as wide, it may have another plot beside it.
export function bars(caption, title, steps, to, unit, said, half = false) {
  const width = half ? narrow : wide;
  const maximum = round(Math.max(...steps.map((s) => s.messages)));
  const from = Date.parse(steps[0].at);
  const drawn = frame(width, title, maximum, unit, clock(from), clock(to));
  const step = (width - margin.left - margin.right) / steps.length;
  steps.forEach((s, i) => {
    const tall = s.messages / maximum * (height - margin.top - margin.bottom);
    drawn.append(svg('rect', {
      class: 'bar', x: margin.left + i * step + 0.5, width: Math.max(step - 1, 0.5),
      y: height - margin.bottom - tall, height: tall,
    }, svg('title', {}, said(s))));
  });
  return el('figure', null, el('figcaption', null, caption), drawn);
}
